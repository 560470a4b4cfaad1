"""Dead letters in a file of JSON lines: the default store.

Lines are only ever appended: a letter, and later what became of it. So the file is also the
record of everything that was ever set aside or discarded. It grows: once ``tailrace dead-letters
list`` shows none, it may be moved away while the service is stopped.

The daemon adds while the command line resolves: each holds the file for the moment of an append,
and reads on first to where the other has written. Any text tool reads it; ``record`` tells what
stands in a line.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

from anyio import CapacityLimiter, move_on_after, to_thread

from tailrace.dead_letters.held import Held, Identity
from tailrace.dead_letters.record import (
    How,
    Resolution,
    letter_line,
    read_line,
    resolution_line,
    unreadable,
)
from tailrace.dead_letters.shared_file import Line, SharedFile, require_usable
from tailrace.errors import DeadLetterError
from tailrace.event.dead_letter import DeadLetter

T = TypeVar("T")

CLOSE_SECONDS = 10.0
"""How long closing may take before the file is left as it is: a hung disk must not hold us."""


class _Place(NamedTuple):
    """Where a letter stands in the file."""

    number: int
    offset: int
    length: int
    key: Hashable


@dataclass(slots=True)
class _Index:
    """The unresolved letters of the file, the oldest first."""

    places: dict[Identity, _Place] = field(default_factory=dict)
    held: Held = field(default_factory=Held)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By scope and handler."""

    def take(self, line: Line, record: DeadLetter | Resolution) -> None:
        if isinstance(record, Resolution):
            self.forget(record.identity)
            return
        identity, key = Identity.of(record), record.key
        if identity not in self.places:
            self.places[identity] = _Place(line.number, line.offset, len(line.data), key)
            self.held.add(identity, key)
            self.counts[identity.scope, identity.handler] += 1

    def forget(self, identity: Identity) -> None:
        place = self.places.pop(identity, None)
        if place is not None:
            self.held.remove(identity, place.key)
            self.counts[identity.scope, identity.handler] -= 1


class JsonlDeadLetters:
    """A :class:`tailrace.engine.ports.DeadLetterStore` in a file that survives a power cut.

    All work on the file runs in a thread, one call at a time, on a limiter of its own. A
    cancelled call is not torn. Of a letter only its place is kept in memory.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._file = SharedFile(self._path)
        # Known, and being read: two while the file is read again, so that no key is let go that
        # is held further down.
        self._index = self._reading = _Index()
        self._limiter = CapacityLimiter(1)
        # Not the limiter alone: asyncio's own Task.cancel() breaks anyio's shield.
        self._lock = threading.Lock()

    @classmethod
    @asynccontextmanager
    async def open(cls, path: str | Path) -> AsyncIterator[Self]:
        """Opens the file at ``path``, which is created with the first letter.

        Raises :class:`tailrace.errors.ConfigurationError` with a problem at
        ``delivery.dead_letters.path`` where that cannot be, and
        :class:`tailrace.errors.DeadLetterError` where the file cannot be read.
        """
        store = cls(Path(path))
        try:
            await store._run(store._open)
            yield store
        finally:
            with move_on_after(CLOSE_SECONDS, shield=True):
                await to_thread.run_sync(store._close, abandon_on_cancel=True)

    def __repr__(self) -> str:
        return f"<JsonlDeadLetters: {self._path}>"

    async def add(self, letter: DeadLetter) -> None:
        """Stores it behind all others, once; on the disk when this returns.

        Raises :class:`tailrace.errors.DeadLetterError`; then nothing was stored.
        """
        await self._run(partial(self._add, letter))

    def held(self, scope: str, handler: str) -> Collection[Hashable]:
        """Keys that have unresolved letters, by what has been read so far."""
        return self._index.held.keys(scope, handler)

    async def holds(self, scope: str, handler: str, key: Hashable) -> bool:
        """Whether the key has unresolved letters, by what stands in the file now."""
        await self.refresh()
        return key in self.held(scope, handler)

    async def refresh(self) -> None:
        """Reads what others have written, so that :meth:`held` knows it."""
        await self._run(self._refresh)

    async def count(self) -> Mapping[tuple[str, str], int]:
        """How many unresolved letters there are by scope and handler, by what is in the file."""
        return await self._run(self._count)

    async def letters(
        self, scope: str | None = None, handler: str | None = None
    ) -> list[DeadLetter]:
        """Unresolved letters, in the order in which they came."""
        return await self._run(partial(self._letters, scope, handler))

    async def resolve(self, letter: DeadLetter, how: How) -> bool:
        """Writes what became of it, durably; says whether it was still waiting."""
        return await self._run(partial(self._resolve, letter, how))

    async def _run(self, work: Callable[[], T]) -> T:
        def alone() -> T:
            with self._lock:
                try:
                    return work()
                except FileNotFoundError as error:
                    raise DeadLetterError(
                        f"{self._path} was moved or removed while the service used it, and the "
                        "letters in it would be forgotten. Put the file back; or restart the "
                        "service, which then begins a new one"
                    ) from error
                except OSError as error:
                    raise DeadLetterError(
                        f"{self._path}: {error.strerror or error}. Nothing was written; the "
                        "directory must be writable and its disk have space"
                    ) from error

        return await to_thread.run_sync(alone, limiter=self._limiter, abandon_on_cancel=False)

    def _open(self) -> None:
        require_usable(self._path)
        self._refresh()

    def _close(self) -> None:
        with self._lock:
            self._file.close()

    def _refresh(self) -> None:
        with self._file.locked() as there:
            if there:
                self._read_on()

    def _count(self) -> Mapping[tuple[str, str], int]:
        self._refresh()
        return +self._index.counts

    def _add(self, letter: DeadLetter) -> None:
        try:
            data = letter_line(letter)
        except ValueError as error:
            raise DeadLetterError(
                f"{self._path}: letter {letter.id} cannot be written: {error}"
            ) from error
        with self._file.locked(create=True):
            self._read_on()
            if Identity.of(letter) in self._index.places:
                self._file.sync()
            else:
                self._index.take(self._file.append(data), letter)

    def _letters(self, scope: str | None, handler: str | None) -> list[DeadLetter]:
        with self._file.locked() as there:
            if not there:
                return []
            self._read_on()
            return [
                self._letter(identity, place)
                for identity, place in self._index.places.items()
                if scope in (None, identity.scope) and handler in (None, identity.handler)
            ]

    def _letter(self, identity: Identity, place: _Place) -> DeadLetter:
        data = self._file.read(place.offset, place.length)
        record = self._read(Line(place.number, place.offset, data))
        if isinstance(record, Resolution) or Identity.of(record) != identity:
            raise unreadable(self._where(place.number), "it was changed while the service ran")
        return record

    def _resolve(self, letter: DeadLetter, how: How) -> bool:
        identity = Identity.of(letter)
        with self._file.locked() as there:
            if not there:
                return False
            self._read_on()
            if identity not in self._index.places:
                return False
            self._file.append(resolution_line(Resolution(identity, how, datetime.now(UTC))))
            self._index.forget(identity)
            return True

    def _read_on(self) -> None:
        if self._file.is_another():
            self._reading = _Index()
        for line in self._file.lines():
            self._reading.take(line, self._read(line))
        self._index = self._reading

    def _read(self, line: Line) -> DeadLetter | Resolution:
        try:
            return read_line(line.data)
        except ValueError as error:
            raise unreadable(self._where(line.number), str(error)) from error

    def _where(self, number: int) -> str:
        return f"{self._path}, line {number}"
