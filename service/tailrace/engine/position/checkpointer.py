"""Saves a scope's watermark: every interval, and when its watcher's run ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import anyio

from tailrace.engine.ports import CheckpointStore, Owner
from tailrace.engine.position.watermark import Position, Watermark
from tailrace.errors import CheckpointError
from tailrace.model import Checkpoint
from tailrace.stream import Interrupt


class Checkpointer:
    """Turns marks into checkpoints of one owner, each newer than the last.

    ``stored`` is the position that the store has already. ``saved`` is told of each attempt: the
    checkpoint, and the error if it failed.
    """

    def __init__(
        self,
        store: CheckpointStore,
        owner: Owner,
        watermark: Watermark,
        sequence: int,
        stored: Position | None,
        saved: Callable[[Checkpoint, CheckpointError | None], None],
    ) -> None:
        self._store = store
        self._owner = owner
        self._watermark = watermark
        self._sequence = sequence
        self._saved = saved
        self._first = watermark.position
        self._last = stored
        self._saving = anyio.Lock()

    @property
    def sequence(self) -> int:
        """The highest one that a save was tried with, whatever became of it."""
        return self._sequence

    async def run(self, interval_seconds: float, until: Interrupt) -> None:
        """Saves whenever the watermark has moved in an interval; the last save is the caller's."""
        while not until.is_set:
            await until.sleep(interval_seconds)
            if not until.is_set:
                await self.save()

    async def save(self, position: Position | None = None, *, first: bool = False) -> None:
        """Saves the watermark (or the ``position``), if it is not what was saved last.

        That of the beginning, which nothing has confirmed yet, is saved only as the ``first``.
        Raises :class:`tailrace.errors.CheckpointError`; the watermark stays unsaved then.
        """
        async with self._saving:
            position = self._watermark.position if position is None else position
            if position == self._last or (position is self._first and not first):
                return
            # A save that failed may have been stored all the same: no two attempts are equal.
            self._sequence += 1
            checkpoint = self._checkpoint(position)
            try:
                await self._store.save(checkpoint)
            except CheckpointError as error:
                self._saved(checkpoint, error)
                raise
            self._last = position
            self._saved(checkpoint, None)

    def _checkpoint(self, position: Position) -> Checkpoint:
        owner = self._owner
        return Checkpoint(
            scope=owner.scope,
            kind=position.kind,
            event_token=position.event_token,
            high_water=position.high_water,
            cluster_time=position.cluster_time,
            cluster=owner.cluster,
            fingerprint=owner.fingerprint,
            epoch=owner.epoch,
            sequence=self._sequence,
            saved_at=datetime.now(UTC),
            owned=position.owned,
            ahead=position.ahead,
        )
