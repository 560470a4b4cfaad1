"""Saves a scope's watermark: every interval, and when its watcher's life ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import anyio

from tailrace.engine.ports import CheckpointStore, Owner
from tailrace.engine.position.watermark import InFlight, Mark
from tailrace.errors import CheckpointError
from tailrace.model import Checkpoint
from tailrace.stream import Interrupt


class Checkpointer:
    """Turns marks into checkpoints of one owner, each newer than the last.

    ``stored`` is the mark that the store has already. ``saved`` is told of each attempt: the
    checkpoint, and the error if it failed.
    """

    def __init__(
        self,
        store: CheckpointStore,
        owner: Owner,
        in_flight: InFlight,
        sequence: int,
        stored: Mark | None,
        saved: Callable[[Checkpoint, CheckpointError | None], None],
    ) -> None:
        self._store = store
        self._owner = owner
        self._in_flight = in_flight
        self._sequence = sequence
        self._saved = saved
        self._first = in_flight.mark
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

    async def save(self, mark: Mark | None = None, *, first: bool = False) -> None:
        """Saves the watermark (or the ``mark``), if it is not what was saved last.

        That of the beginning, which nothing has confirmed yet, is saved only as the ``first``.
        Raises :class:`tailrace.errors.CheckpointError`; the watermark stays unsaved then.
        """
        async with self._saving:
            mark = self._in_flight.mark if mark is None else mark
            if mark == self._last or (mark is self._first and not first):
                return
            # A save that failed may have been stored all the same: no two attempts are equal.
            self._sequence += 1
            checkpoint = self._checkpoint(mark)
            try:
                await self._store.save(checkpoint)
            except CheckpointError as error:
                self._saved(checkpoint, error)
                raise
            self._last = mark
            self._saved(checkpoint, None)

    def _checkpoint(self, mark: Mark) -> Checkpoint:
        owner = self._owner
        return Checkpoint(
            scope=owner.scope,
            kind=mark.kind,
            event_token=mark.event_token,
            high_water=mark.high_water,
            cluster_time=mark.cluster_time,
            cluster=owner.cluster,
            fingerprint=owner.fingerprint,
            epoch=owner.epoch,
            sequence=self._sequence,
            saved_at=datetime.now(UTC),
            owned=mark.owned,
            ahead=mark.ahead,
        )
