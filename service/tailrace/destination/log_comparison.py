"""Compares what a log of changes amounts to: the last state of each document in it."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Protocol

from anyio import to_thread

from tailrace.destination.folded_log import FoldedLog, LoggedChange
from tailrace.destination.temporary_rows import FileComparison
from tailrace.engine import Comparison, HeldKeys, HeldRows, Row
from tailrace.errors import ScopeHalted
from tailrace.event import ChangeEvent, Namespace
from tailrace.model import SinkPosition
from tailrace.model.snapshot import DocumentId


class ChangeLog(Protocol):
    """What a handler has written of one scope, to be read from its begin. Its methods block."""

    @property
    def removed(self) -> str:
        """What of the log is not there any more, for people; empty if it is whole."""

    @property
    def position(self) -> SinkPosition | None:
        """That of the scope after what was read; ``None`` if the log has none."""

    def more(self) -> Iterable[LoggedChange] | None:
        """Some more changes, as far as they are written; ``None`` at the end for now."""

    def close(self) -> None: ...


class LogComparison(FileComparison):
    """Implements :class:`tailrace.destination.Comparison`; ``make`` makes the row of a document.

    The log is read as far as it is written before each answer, in a thread, a part at a time.
    """

    def __init__(
        self, log: ChangeLog, folded: FoldedLog, make: Callable[[ChangeEvent], Row]
    ) -> None:
        super().__init__(lambda documents: [make(each) for each in documents])
        self._log = log
        self._folded = folded

    async def stored(self, collection: Namespace, keys: Sequence[DocumentId]) -> HeldRows:
        await self.fold()
        self._require_whole(collection)
        held = await self._in_thread(lambda: self._folded.rows(collection, keys))
        return replace(held, position=self._log.position)

    async def stored_keys(self, collection: Namespace, after: str | None, most: int) -> HeldKeys:
        await self.fold()
        return await self._in_thread(lambda: self._folded.keys(collection, after, most))

    async def fold(self) -> None:
        """Reads the log up to its end."""
        while await self._in_thread(self._fold_more):
            pass

    def _fold_more(self) -> bool:
        changes = self._log.more()
        if changes is not None:
            self._folded.fold(changes)
        return changes is not None

    def _require_whole(self, collection: Namespace) -> None:
        if (removed := self._log.removed) and not self._folded.is_whole(collection):
            raise ScopeHalted(
                f"{removed}, so the documents of {collection} in it are not known. A snapshot of "
                "the collection brings them: tailrace snapshot start"
            )


@asynccontextmanager
async def log_comparison(
    open_log: Callable[[], ChangeLog], make: Callable[[ChangeEvent], Row]
) -> AsyncIterator[Comparison]:
    """Reads a log up to its end, and closes it and what was made of it afterwards."""
    log = await to_thread.run_sync(open_log)
    try:
        folded = FoldedLog()
        try:
            comparison = LogComparison(log, folded, make)
            await comparison.fold()
            yield comparison
        finally:
            folded.close()
    finally:
        log.close()
