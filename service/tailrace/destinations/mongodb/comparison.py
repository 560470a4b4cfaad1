"""Compares the documents of copies, byte by byte, with those that a batch would write there."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import ReadPreference
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.read_concern import ReadConcern

from tailrace.destination import (
    ROWS_BYTES,
    DocumentId,
    FieldMapping,
    HeldKey,
    HeldKeys,
    HeldRows,
    Namespace,
    Row,
)
from tailrace.destination.document_row import DocumentRow
from tailrace.destinations.mongodb.cluster import CLOSING_SECONDS, MAJORITY, Cluster
from tailrace.destinations.mongodb.copy_changes import CopyChanges
from tailrace.destinations.mongodb.names import POSITIONS
from tailrace.destinations.mongodb.outcomes import outages
from tailrace.destinations.mongodb.state import Copies
from tailrace.errors import Refused
from tailrace.event import ChangeEvent
from tailrace.event.document_key import compare_with, identity, key_text
from tailrace.event.wanted_documents import filter_of

_RAW: CodecOptions[Any] = CodecOptions(document_class=RawBSONDocument)


class CopyComparison:
    """Implements :class:`tailrace.destination.Comparison` with a client of its own.

    ``state`` is the database of the position ``own_id``.
    """

    def __init__(
        self,
        cluster: Cluster,
        copy_of: Callable[[Namespace], Namespace],
        mapping: FieldMapping | None,
        state: str,
        own_id: str,
    ) -> None:
        self._cluster = cluster
        self._copy_of = copy_of
        self._mapping = mapping
        self._state = state
        self._own_id = own_id

    async def expected(self, documents: Sequence[ChangeEvent]) -> Sequence[Row]:
        events = documents if self._mapping is None else self._mapping.of(documents)
        copied, refused = CopyChanges(Namespace("")), dict[int, str]()
        for index, event in enumerate(events):
            if reason := copied.add(index, event):
                refused[index] = reason
        if refused:
            raise Refused(refused)
        return [DocumentRow(change.document or b"") for change in copied.changes]

    async def stored(self, collection: Namespace, keys: Sequence[DocumentId]) -> HeldRows:
        held, size = dict[bytes, DocumentRow](), 0
        with outages():
            copy = await self._copy(collection)
            async with self._snapshot() as session:
                positions = self._cluster.database(self._state)[POSITIONS]
                record = await positions.find_one({"_id": self._own_id}, session=session) or {}
                if copy is not None and keys:
                    query = RawBSONDocument(filter_of(key.raw for key in keys))
                    async with copy.find(query, session=session) as documents:
                        async for document in documents:
                            raw = bytes(document.raw)  # of 4 KiB and more it is a view
                            held[identity(raw, 0)] = DocumentRow(raw)
                            if (size := size + len(raw)) >= ROWS_BYTES:
                                break
        rows = [held.get(identity(key.raw, 0)) for key in keys]
        whole = size < ROWS_BYTES or len(held) == len(keys)
        return HeldRows(rows, record.get("position"), whole=whole)

    async def stored_keys(self, collection: Namespace, after: str | None, most: int) -> HeldKeys:
        documents: list[Any] = []
        with outages():
            copy = await self._copy(collection)
            if copy is not None:
                query: Mapping[str, Any] = {}
                if after is not None:
                    query = compare_with("$gt", DocumentId.from_text(after).raw)
                cursor = copy.find(query, {"_id": 1}, sort={"_id": 1}, hint={"_id": 1}, limit=most)
                documents = await cursor.to_list()
        keys = [DocumentId(bytes(each.raw)) for each in documents]
        following = keys[-1].to_text() if len(keys) == most else None
        return HeldKeys([HeldKey(key_text(key.raw), key) for key in keys], following)

    async def _copy(self, source: Namespace) -> Any:
        """The copy of a collection, raw; ``None`` if there is none."""
        copy = self._copy_of(source)
        if not await Copies(self._cluster, self._state).has(copy, source):
            return None
        return self._cluster.database(copy.db).get_collection(str(copy.coll), _RAW)

    @asynccontextmanager
    async def _snapshot(self) -> AsyncIterator[AsyncClientSession]:
        """A transaction that sees one moment. Its commit waits until a majority has all of it."""
        session = self._cluster.client.start_session(causal_consistency=False)
        try:
            await session.start_transaction(
                ReadConcern("snapshot"), MAJORITY, ReadPreference.PRIMARY
            )
            yield session
            await session.commit_transaction()
        finally:
            with anyio.move_on_after(CLOSING_SECONDS, shield=True):
                await session.end_session()
