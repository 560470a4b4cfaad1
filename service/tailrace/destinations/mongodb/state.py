"""What Tailrace stores beside the copies: positions, and which collection each copy is of.

tailrace_positions    {_id: "HANDLER/SCOPE", epoch, position, session, snapshot, ddl}
tailrace_collections  {_id: "COPY", db, coll}
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bson import Int64
from pymongo import ReturnDocument
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import CollectionInvalid, DuplicateKeyError, OperationFailure

from tailrace.destination import is_before
from tailrace.destinations.mongodb.cluster import Cluster
from tailrace.destinations.mongodb.names import POSITIONS, shared
from tailrace.destinations.mongodb.outcomes import NAMESPACE_EXISTS
from tailrace.errors import Fenced, ScopeHalted, Unavailable
from tailrace.event import ChangeEvent, Namespace

COLLECTIONS = "tailrace_collections"

_CLAIM_MS = 10_000
"""How long a claim may wait for a transaction of a former owner."""
_CLAIMS = 3
"""How often it is tried to make a position document that another process makes, too."""


@dataclass(slots=True)
class PositionDocument:
    """The position document of one handler and scope. Every call raises the driver's errors."""

    cluster: Cluster
    database: str
    own_id: str
    epoch: int
    text: str | None = None
    """What is stored, as of the last call that worked."""
    snapshot: Mapping[str, Any] | None = None
    """The snapshot whose rows come, as :mod:`tailrace.destinations.mongodb.sweep` notes it."""
    ddl: str | None = None
    """The mark of the last drop or rename that was applied."""

    @property
    def where(self) -> str:
        """Where it is, for messages."""
        return f"{self.database}.{POSITIONS}, {self.own_id}"

    async def claim(self, session: AsyncClientSession) -> None:
        """Makes this process the owner. Raises :class:`Fenced` if a later one owns it.

        What the former owner's session left open is killed, so that it holds no document; without
        the right to do so it ends by itself, after transactionLifetimeLimitSeconds (60 s).
        """
        positions = self._collection
        record = await positions.find_one({"_id": self.own_id})
        if record is not None and "session" in record and record["epoch"] <= self.epoch:
            with suppress(OperationFailure):
                await self.cluster.client.admin.command("killSessions", [record["session"]])
        query = {"_id": self.own_id, "epoch": {"$lte": self.epoch}}
        owned = {"epoch": Int64(self.epoch), "session": session.session_id}
        for _ in range(_CLAIMS):
            try:
                record = await positions.find_one_and_update(
                    query,
                    {"$set": owned},
                    upsert=True,
                    return_document=ReturnDocument.AFTER,
                    maxTimeMS=_CLAIM_MS,
                )
            except DuplicateKeyError:
                stored = await positions.find_one({"_id": self.own_id})
                if stored is not None and stored["epoch"] > self.epoch:
                    raise Fenced(
                        f"{self.where}: a process with epoch {stored['epoch']} owns it, and this "
                        f"one has {self.epoch}. If its store is lost, set the epoch there to 0"
                    ) from None
                continue
            if record is not None:
                self.text, self.snapshot = record.get("position"), record.get("snapshot")
                self.ddl = record.get("ddl")
                return
        raise Unavailable(f"{self.where}: other processes make it at the same time")

    async def move(
        self,
        session: AsyncClientSession,
        former: str | None,
        position: str | None,
        first: ChangeEvent,
    ) -> None:
        """Replaces the former position in the session's transaction by that after a batch whose
        first event this is. Raises :class:`Fenced`."""
        update: dict[str, Any] = {"position": position}
        if self.ddl is not None and is_before(first, self.ddl):
            update["ddl"] = self.ddl = None  # it comes again, too
        await self._change({"$set": update}, former, session)

    async def require(self, session: AsyncClientSession | None = None) -> None:
        """Raises :class:`Fenced` unless this process still owns it. It writes, so that the
        transaction of another owner would conflict."""
        await self._change({"$inc": {"barriers": Int64(1)}}, self.text, session)

    async def note(self, snapshot: Mapping[str, Any] | None) -> None:
        """Stores what is known about a snapshot. Raises :class:`Fenced`."""
        await self._change({"$set": {"snapshot": snapshot}}, self.text, None)
        self.snapshot = snapshot

    async def note_ddl(self, mark: str) -> None:
        """Stores that a drop or a rename was applied. Raises :class:`Fenced`."""
        await self._change({"$set": {"ddl": mark}}, self.text, None)
        self.ddl = mark

    async def _change(
        self,
        update: Mapping[str, Any],
        former: str | None,
        session: AsyncClientSession | None,
    ) -> None:
        query = {"_id": self.own_id, "epoch": self.epoch, "position": former}
        done = await self._collection.update_one(query, update, session=session)
        if not done.matched_count:
            raise Fenced(f"{self.where}: another process has written since")

    @property
    def _collection(self) -> AsyncCollection[dict[str, Any]]:
        return self.cluster.database(self.database)[POSITIONS]


@dataclass(frozen=True, slots=True)
class Copies:
    """Which collection each copy is of, over all scopes, handlers and processes."""

    cluster: Cluster
    database: str

    async def register(self, copy: Namespace, source: Namespace) -> None:
        """Makes the copy, unless it is there. Raises :class:`ScopeHalted` if it is of another
        collection."""
        entry = {"_id": str(copy), "db": source.db, "coll": source.coll}
        try:
            await self._collection.update_one(entry, {"$setOnInsert": entry}, upsert=True)
        except DuplicateKeyError:
            record = await self._collection.find_one({"_id": str(copy)}) or {}
            former = Namespace(record.get("db", "?"), record.get("coll"))
            if former != source:  # else another process was faster
                raise ScopeHalted(
                    f"{shared(copy, former, source)}. If {former} is not followed any more, delete "
                    f"{{_id: '{copy}'}} from {self.database}.{COLLECTIONS}"
                ) from None
        await self.make(copy)

    async def make(self, copy: Namespace) -> None:
        """Makes a collection, unless it is there: not every server does so in a transaction."""
        try:
            database = self.cluster.database(copy.db)
            await database.create_collection(str(copy.coll), check_exists=False)
        except CollectionInvalid:
            pass
        except OperationFailure as error:
            if error.code != NAMESPACE_EXISTS:
                raise

    async def of(self, database: str | None, coll: str | None) -> list[tuple[Namespace, str]]:
        """The collections of a collection's, a database's or the cluster's copies, and theirs."""
        wanted = {"db": database, "coll": coll}
        query = {name: value for name, value in wanted.items() if value is not None}
        found = await self._collection.find(query).to_list()
        return [(Namespace(each["db"], each["coll"]), each["_id"]) for each in found]

    async def has(self, copy: Namespace, source: Namespace) -> bool:
        """Whether there is such a copy, and of this collection."""
        entry = {"_id": str(copy), "db": source.db, "coll": source.coll}
        return await self._collection.find_one(entry) is not None

    async def forget(self, copy: Namespace) -> None:
        """Forgets that there is such a copy."""
        await self._collection.delete_one({"_id": str(copy)})

    @property
    def _collection(self) -> AsyncCollection[dict[str, Any]]:
        return self.cluster.database(self.database)[COLLECTIONS]
