"""Removes what a snapshot shows to be gone. Copies stay equal to the source: nothing is in them.

At ``snapshotBegin`` the ``_id``s of the documents that the copies have are listed by the server in
a collection beside them. Whatever a row or a change names leaves the list, in the transaction that
writes it. What is still listed at ``snapshotEnd`` is gone. If the copies are empty, as before a
first snapshot, there is no list, and nothing more to write.

    tailrace_unseen  {_id: {of: "HANDLER/SCOPE", in: "COPY", _id: …}}
"""

from collections.abc import Iterable, Mapping
from typing import Any

from bson import MaxKey, MinKey
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

from tailrace.destinations.mongodb.cluster import Cluster
from tailrace.destinations.mongodb.statements import BulkWrite, commands, deletion, nested
from tailrace.event import Namespace
from tailrace.event.bson import elements as elements_of
from tailrace.event.bson import encoded, string_value

UNSEEN = "tailrace_unseen"
_PAGE = 1000
_RAW: CodecOptions[Any] = CodecOptions(document_class=RawBSONDocument)


class Unseen:
    """The list of one handler and scope, ``of``, in the database ``database``."""

    def __init__(self, cluster: Cluster, database: str, of: str) -> None:
        self._cluster = cluster
        self._of = of
        self._list = Namespace(database, UNSEEN)
        self._collection: Any = cluster.database(database).get_collection(UNSEEN, _RAW)

    async def begin(self, copies: Iterable[Namespace]) -> bool:
        """Lists what these copies have; returns whether there is anything."""
        await self.end()
        for copy in copies:
            await self._merge(copy, [{"$project": {"_id": self._key("$_id", copy)}}])
        return await self._collection.find_one(self._range()) is not None

    async def rename(self, copy: Namespace, to: Namespace) -> None:
        """Lists under its new name what a copy had when it was renamed."""
        project = {"$project": {"_id": self._key("$_id._id", to)}}
        await self._merge(self._list, [{"$match": self._range(copy)}, project])

    def named(self, copy: Namespace, keys: Iterable[bytes]) -> Iterable[BulkWrite]:
        """The commands that take documents of a copy, by their ``{_id: …}``, from the list."""
        of, copy_name = (string_value(text.encode()) for text in (self._of, str(copy)))
        before = b"\x02of\0" + of + b"\x02in\0" + copy_name
        found = (
            (-1, deletion(encoded(nested(b"_id", encoded(before + key[4:-1]))))) for key in keys
        )
        return commands(self._list, "delete", found)

    async def page(self, copy: Namespace) -> list[bytes]:
        """Some of what is still listed of a copy, each as ``{_id: …}``; empty if nothing is."""
        found = await self._collection.find(self._range(copy), limit=_PAGE).to_list()
        # The driver gives a view of a document of 4 KiB and more.
        return [_own_key(bytes(each.raw)) for each in found]

    async def end(self) -> None:
        """Removes the list."""
        await self._collection.delete_many(self._range())

    async def _merge(self, source: Namespace, stages: list[Mapping[str, Any]]) -> None:
        into = {"db": self._list.db, "coll": self._list.coll}
        merge = {"$merge": {"into": into, "whenMatched": "keepExisting"}}
        collection = self._cluster.database(source.db)[str(source.coll)]
        await (await collection.aggregate([*stages, merge])).to_list()

    def _key(self, path: str, copy: Namespace) -> Mapping[str, Any]:
        return {"of": {"$literal": self._of}, "in": {"$literal": str(copy)}, "_id": path}

    def _range(self, copy: Namespace | None = None) -> Mapping[str, Any]:
        """A query that the index on ``_id`` serves."""
        first = {"of": self._of, "in": MinKey() if copy is None else str(copy), "_id": MinKey()}
        last = {"of": self._of, "in": MaxKey() if copy is None else str(copy), "_id": MaxKey()}
        return {"_id": {"$gte": first, "$lte": last}}


def _own_key(raw: bytes) -> bytes:
    """``{_id: …}`` of the copy that an entry of the list names."""
    inner = elements_of(raw, 0)[b"_id"][1]
    kind, at = elements_of(raw, inner)[b"_id"]
    end = inner + int.from_bytes(raw[inner : inner + 4], "little") - 1  # it is the last one
    return encoded(b"%c_id\0" % kind + raw[at:end])
