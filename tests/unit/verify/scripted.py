"""A source and a destination in memory, whose reads a test may interrupt with changes."""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import bson
from bson.timestamp import Timestamp

from tailrace.destination import (
    DocumentId,
    HeldKey,
    HeldKeys,
    HeldRows,
    Namespace,
    ReadDocuments,
    Row,
)
from tailrace.errors import CommandFailed
from tailrace.event import ChangeEvent
from tailrace.event.document_key import identity
from tailrace.event.reply import Reply
from tailrace.model import ResumeToken, SinkPosition, StartPoint
from tailrace.model.verification import ComparedCollection
from tailrace.snapshot.chunk import Chunk
from tailrace.snapshot.limits import ChunkLimit
from tailrace.verify.source import SourceDocuments
from tailrace.verify.window import Reached
from tests.unit.engine.changes import change

ORDERS = ComparedCollection("00" * 16, "shop", "orders", 3)
TOKEN = ResumeToken.of({"_data": "8265A0B0C000000001"})


def at(moment: int) -> Timestamp:
    return Timestamp(1000 + moment, 1)


def key(number: Any) -> DocumentId:
    return DocumentId(bson.encode({"_id": number}))


def one(number: Any) -> bytes:
    return identity(key(number).raw, 0)


class World:
    """Documents by the moment of each change, and rows that follow the first ``handled`` ones.

    ``on``: by the name of a read, what happens just before it, once each.
    """

    def __init__(self, *, positioned: bool = True) -> None:
        self.moment = 0
        self.handled = 0
        self.positioned = positioned
        self.changes: list[tuple[int, Any, Any]] = []
        self.rows: dict[bytes, Row] = {}
        self.forgotten: list[tuple[int, Any, Any]] = []
        self.on: dict[str, list[Callable[[], Any]]] = {}
        self.failures: dict[str, list[Exception]] = {}
        self.ddl: list[int] = []
        self.reads: list[str] = []
        self.sizes: list[int] = []
        """The documents in the chunks that were read."""

    def change(self, number: Any, value: Any) -> None:
        """A change in the source; ``None`` deletes."""
        self.moment += 1
        self.changes.append((self.moment, number, value))

    def follow(self, until: int | None = None) -> None:
        """The destination handles changes."""
        until = len(self.changes) if until is None else until
        for _, number, value in self.changes[self.handled : until]:
            self.rows.pop(one(number), None)
            if value is not None:
                self.rows[one(number)] = {"n": value}
        self.handled = until

    def documents_at(self, moment: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for when, number, value in self.changes:
            if when <= moment:
                found.pop(number, None)
                if value is not None:
                    found[number] = value
        return found

    def before(self, read: str) -> None:
        self.reads.append(read)
        if self.on.get(read):
            self.on[read].pop(0)()
        if self.failures.get(read):
            raise self.failures[read].pop(0)

    @property
    def stands(self) -> Timestamp:
        """The time of the last change that is handled."""
        return at(self.changes[self.handled - 1][0])

    def reached(self) -> Reached:
        """The start is the number of the changes that are handled."""
        return Reached(self.stands, StartPoint(at_operation_time=at(self.handled)))

    # --- the source ----------------------------------------------------------------------------

    server = None

    async def now(self) -> Timestamp:
        self.before("now")
        return at(self.moment)

    async def keys(
        self, of: ComparedCollection, time: Timestamp, limit: ChunkLimit, matching: Any
    ) -> Chunk:
        self.before("keys")
        return self._chunk(of, time, limit.documents, keys_only=True)

    async def chunk(
        self, of: ComparedCollection, time: Timestamp, limit: ChunkLimit, matching: Any
    ) -> Chunk:
        self.before("documents")
        return self._chunk(of, time, limit.documents)

    def _chunk(
        self, of: ComparedCollection, time: Timestamp, most: int, *, keys_only: bool = False
    ) -> Chunk:
        found = self.documents_at(time.time - 1000)
        after = bson.decode(of.last.raw)["_id"] if of.last is not None else -1
        chosen = [number for number in sorted(found) if number > after][:most]
        self.sizes.append(len(chosen))
        shown = {number: {} if keys_only else {"n": found[number]} for number in chosen}
        raws = [bson.encode({"_id": number} | fields) for number, fields in shown.items()]
        ends = accumulate(map(len, raws), initial=0)
        bounds = [edge for pair in pairwise(ends) for edge in pair]
        last = key(chosen[-1]) if chosen else None
        replies = [Reply(b"".join(raws), bounds)]
        return Chunk(replies, last, len(chosen), ends=len(chosen) < most)

    async def documents_up_to(
        self, of: ComparedCollection, until: DocumentId, time: Timestamp, limit: ChunkLimit
    ) -> SourceDocuments:
        self.before("documents")
        return self._found(self.documents_at(time.time - 1000))

    async def documents(
        self, of: ComparedCollection, keys: Sequence[DocumentId], time: Timestamp
    ) -> SourceDocuments:
        self.before("documents")
        wanted = {one.raw for one in keys}
        found = self.documents_at(time.time - 1000)
        return self._found({n: value for n, value in found.items() if key(n).raw in wanted})

    def _found(self, documents: Mapping[Any, Any]) -> SourceDocuments:
        events = {
            one(number): ChangeEvent.from_document(
                change(1, number, fullDocument={"_id": number, "n": value})
            )
            for number, value in documents.items()
        }
        return SourceDocuments(events, True, 100 * len(events))

    async def existing(
        self, of: ComparedCollection, keys: Sequence[DocumentId], time: Timestamp
    ) -> Mapping[bytes, DocumentId]:
        self.before("existing")
        found = self.documents_at(time.time - 1000)
        return {one(number): key(number) for number in found}

    async def without_documents(
        self, of: ComparedCollection, keys: Sequence[DocumentId], time: Timestamp
    ) -> Sequence[DocumentId]:
        existing = await self.existing(of, keys, time)
        return [one for one in keys if identity(one.raw, 0) not in existing]

    async def touched(
        self, of: ComparedCollection, keys: Sequence[DocumentId], reached: Reached, high: Timestamp
    ) -> set[bytes] | None:
        self.before("touched")
        if any(reached.time < at(moment) <= high for moment in self.ddl):
            return None
        assert reached.start.at_operation_time is not None
        later = self.changes[reached.start.at_operation_time.time - 1000 :]
        return {one(number) for moment, number, _ in later if at(moment) <= high}

    # --- the destination -----------------------------------------------------------------------

    async def expected(self, documents: Sequence[ChangeEvent]) -> Sequence[Row]:
        return [{"n": (event.full_document or {})["n"]} for event in documents]

    async def stored(self, collection: Namespace, keys: Sequence[DocumentId]) -> HeldRows:
        self.before("stored")
        rows = [self.rows.get(identity(one.raw, 0)) for one in keys]
        position = SinkPosition(TOKEN, self.stands) if self.positioned else None
        return HeldRows(rows, None, position)

    async def stored_keys(self, collection: Namespace, after: str | None, most: int) -> HeldKeys:
        self.before("stored_keys")
        numbers = dict.fromkeys(number for _, number, _ in [*self.changes, *self.forgotten])
        held = [number for number in numbers if one(number) in self.rows]
        return HeldKeys([HeldKey(str(number), key(number)) for number in held])


class QuickWorld(World):
    """One whose destination compares by itself."""

    async def suspects(self, collection: Namespace, read: ReadDocuments) -> Sequence[int]:
        self.before("stored")
        rows, position = dict(self.rows), SinkPosition(TOKEN, self.stands)
        documents: list[bytes] = []
        while more := await read(HeldRows((), None, position if self.positioned else None)):
            documents += more
        held = [rows.get(identity(each, 0)) for each in documents]
        return [at for at, row in enumerate(held) if row != {"n": bson.decode(documents[at])["n"]}]


def too_old(code: int = 239) -> CommandFailed:
    return CommandFailed("the snapshot is too old", code=code, code_name="SnapshotTooOld")
