"""One look: the rows of some keys, and their documents as of a moment that fits the rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from bson.timestamp import Timestamp

from tailrace.engine import Comparison
from tailrace.errors import CommandFailed
from tailrace.event import Namespace
from tailrace.model.snapshot import DocumentId
from tailrace.model.verification import ComparedCollection
from tailrace.snapshot.error_codes import READ_LATER
from tailrace.verify.compare import Compared, Suspect, compared, expected_rows
from tailrace.verify.source import Source, SourceDocuments, identities
from tailrace.verify.window import Reached, Window, reached_by, window

MOST_LOOKS = 5
"""After so many looks at which its document had just changed, a key is in flux."""
MOST_KEYS = 1000
"""The most keys of a look."""

T = TypeVar("T")
ReadDocuments = Callable[[Timestamp], Awaitable[SourceDocuments]]


@dataclass(frozen=True, slots=True)
class Looked:
    """The result of a look. ``size``: of the documents, in bytes; ``read``: how many."""

    compared: Compared
    window: Window
    size: int
    read: int


@dataclass(frozen=True, slots=True)
class Looker:
    """Looks at keys of one scope. ``reached``: up to where its handler has
    handled everything."""

    source: Source
    comparison: Comparison
    reached: Callable[[], Reached]
    full_document: str | None

    async def look(
        self, of: ComparedCollection, keys: Sequence[DocumentId], read: ReadDocuments | None = None
    ) -> Looked:
        """Compares the rows with these keys. ``read``: how to read their documents."""
        reached = self.reached()
        namespace = Namespace(of.database, of.collection)
        held = await self.comparison.stored(namespace, keys)
        unread: Sequence[DocumentId] = ()
        if not held.whole:  # then nothing is known of those without a row
            unread = [key for key, row in zip(keys, held.rows, strict=True) if row is None]
            keys = [key for key, row in zip(keys, held.rows, strict=True) if row is not None]
            held = replace(held, rows=[row for row in held.rows if row is not None])
        position = held.position.time if held.position is not None else None
        reached = reached_by(held, reached)
        moment = window(reached, position, await self.source.now(), self.full_document)

        async def by_key(time: Timestamp) -> SourceDocuments:
            return await self.source.documents(of, keys, time)

        documents, moment = await as_of(moment, read or by_key)
        expected = await expected_rows(self.comparison, list(documents.events.values()))
        indices = {of_document: at for at, of_document in enumerate(documents.events)}
        rows_of_keys = [indices.get(one) for one in identities(keys)]
        whole = documents.whole or (len(keys) == 1 and rows_of_keys != [None])
        result = compared(keys, rows_of_keys, expected, held, whole=whole)
        result.unread += unread
        if read is None and result.suspects and moment.stands < moment.at:
            await self._settle_as_of_position(of, result, moment)
        return Looked(result, moment, documents.size, len(documents.events))

    async def _settle_as_of_position(
        self, of: ComparedCollection, result: Compared, moment: Window
    ) -> None:
        """Settles suspects that are equal to their documents as of where the destination stands:
        most that change often are, though not to those of now."""
        suspects = {each.id: each for each in result.suspects if each.stored is not None}
        keys = list(suspects)
        if not keys:
            return
        try:
            documents = await self.source.documents(of, keys, moment.stands)
        except CommandFailed as error:
            if error.code not in READ_LATER:
                raise
            return
        expected = await expected_rows(self.comparison, list(documents.events.values()))
        rows = dict(zip(documents.events, expected.rows, strict=True))
        for key, one in zip(keys, identities(keys), strict=True):
            if (row := rows.get(one)) is not None and row == suspects[key].stored:
                result.suspects.remove(suspects[key])
                result.equal += 1

    async def settled(self, of: ComparedCollection, looked: Looked) -> Settled:
        """Which suspects are certain: no change touched their documents meanwhile."""
        suspects = looked.compared.suspects
        if not suspects:
            return Settled()
        ids = [each.id for each in suspects]
        reached, high = looked.window.reached, looked.window.high
        touched = await self.source.touched(of, ids, reached, high)
        if touched is None:
            return Settled(open=ids)
        result = Settled()
        for suspect, one in zip(suspects, identities(ids), strict=True):
            if one in touched:
                result.open.append(suspect.id)
            else:
                result.differing.append(suspect)
        return result


async def as_of(moment: Window, read: Callable[[Timestamp], Awaitable[T]]) -> tuple[T, Window]:
    """What is read as of the window's moment, or of its end if that is too old to be read."""
    try:
        return await read(moment.at), moment
    except CommandFailed as error:
        if error.code not in READ_LATER or moment.at == moment.high:
            raise
    return await read(moment.high), replace(moment, at=moment.high)


@dataclass(slots=True)
class Settled:
    """The suspects that differ, and the keys that are still ``open``."""

    differing: list[Suspect] = field(default_factory=list)
    open: list[DocumentId] = field(default_factory=list)


@dataclass(slots=True)
class OpenKeys:
    """The keys of a collection that are looked at again, in turn, and how often they were."""

    looks: dict[DocumentId, int] = field(default_factory=dict)
    most: int = MOST_KEYS
    """How many the next look has: fewer after one whose documents were too large for it."""
    after: Timestamp | None = None
    """The next look is better once the handler has handled everything up to here."""

    def add(self, keys: Collection[DocumentId]) -> None:
        """Adds keys that were not looked at alone yet."""
        for key in keys:
            self.looks.setdefault(key, 0)

    def next(self) -> list[DocumentId]:
        """The keys of the next look."""
        return list(self.looks)[: self.most]

    def looked(self, keys: Sequence[DocumentId], unread: int, *, high: Timestamp) -> None:
        """A look at these keys is over, of which so many were not read."""
        self.most = max(len(keys) // 4, 1) if unread else min(2 * self.most, MOST_KEYS)
        self.after = high

    def settle(self, keys: Collection[DocumentId]) -> None:
        """Forgets keys that are settled."""
        for key in keys:
            self.looks.pop(key, None)

    def again(self, keys: Collection[DocumentId]) -> list[DocumentId]:
        """Counts a look at keys that it did not settle; returns those in flux."""
        fluid: list[DocumentId] = []
        for key in keys:
            looks = self.looks.pop(key, 0) + 1
            if looks >= MOST_LOOKS:
                fluid.append(key)
            else:
                self.looks[key] = looks  # behind those that were looked at less often
        return fluid

    @property
    def waits(self) -> bool:
        """Whether all of them were looked at: the next look is to be later."""
        return bool(self.looks) and min(self.looks.values()) > 0
