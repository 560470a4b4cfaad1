"""Leases in a collection of a replica set, by the clock of its primary (``$$NOW``).

``leases`` has one document per lease, whose ``_id`` is the lease's name, and one per member,
``member:<id>`` (no scope name has a colon). A lease is never deleted: its epoch would start again.
Documents are created separately, since the server refuses ``$expr`` in an upsert (code 224).
"""

from collections.abc import Collection, Mapping
from typing import Any

from bson.datetime_ms import DatetimeMS

from tailrace.model.lease import Lease, Member, Sharing
from tailrace.stores.mongodb_collection import RecordCollection

_MEMBER = "member:"
_FORGET_MS = 3_600_000
"""How long after its heartbeat expired a member that has not left is forgotten."""

_LONG_AGO = DatetimeMS(0)
_LIVE = {"$expr": {"$gt": ["$until", "$$NOW"]}}
_FREE = {"$expr": {"$lte": ["$until", "$$NOW"]}}
# The server leaves out members that are not alive.
_READ: tuple[Mapping[str, Any], ...] = (
    {"$match": {"$or": [{"epoch": {"$exists": True}}, {"name": {"$exists": True}, **_LIVE}]}},
    {
        "$set": {
            "left": {"$subtract": ["$until", "$$NOW"]},
            "age": {"$subtract": ["$$NOW", "$joined"]},
        }
    },
    {"$unset": ["until", "joined"]},
)
_MOST = 100_000
"""The most documents of a reply: more than there are scopes and members."""


class MongoLeases:
    """A :class:`tailrace.replicas.ports.LeaseStore`."""

    def __init__(self, records: RecordCollection) -> None:
        self._records = records
        self._name = str(records)

    async def prepare(self, scopes: Collection[str]) -> None:
        free = {"owner": "", "epoch": 0, "until": _LONG_AGO, "wanted_by": ""}
        make: list[Mapping[str, Any]] = [
            {"q": {"_id": scope}, "u": {"$setOnInsert": free}, "upsert": True} for scope in scopes
        ]
        await self._records.update_all(make, self._name)
        dead = {"$lt": ["$until", {"$subtract": ["$$NOW", _FORGET_MS]}]}
        await self._records.delete_all({"name": {"$exists": True}, "$expr": dead}, self._name)

    async def read(self) -> Sharing:
        found = await self._records.aggregate(
            *_READ, where=self._name, limit=_MOST, level="majority"
        )
        members = [_member(each) for each in found if each["_id"].startswith(_MEMBER)]
        leases = [_lease(each) for each in found if not each["_id"].startswith(_MEMBER)]
        return Sharing.of_all(leases, members)

    async def acquire(self, seen: Lease, owner: str, epoch: int, seconds: float) -> bool:
        query = {"_id": seen.scope, "epoch": seen.epoch, "$or": [_FREE, {"owner": owner}]}
        change = {"owner": owner, "epoch": epoch, "until": _later(seconds), "wanted_by": ""}
        where = self._where(seen.scope)
        return await self._records.find_and_modify(query, [{"$set": change}], where) is not None

    async def renew(
        self, owner: str, scopes: Collection[str], seconds: float, heartbeat: Member | None = None
    ) -> int:
        until = _later(seconds)
        held = {"_id": {"$in": list(scopes)}, "owner": owner, **_LIVE}
        updates: list[Mapping[str, Any]] = [
            {"q": held, "u": [{"$set": {"until": until}}], "multi": True}
        ]
        if heartbeat is not None:  # after the leases, which are more urgent
            updates.append(_heartbeat(heartbeat, until))
        renewed = await self._records.update_all(updates, f"{self._name}, owner {owner!r}")
        return renewed - len(updates[1:])

    async def release(self, scope: str, owner: str, epoch: int) -> None:
        query = {"_id": scope, "owner": owner, "epoch": epoch}
        change = {"owner": "", "until": {"$min": ["$until", "$$NOW"]}}
        update = {"q": query, "u": [{"$set": change}]}
        await self._records.update_all([update], self._where(scope))

    async def free(self, seen: Lease, epoch: int) -> bool:
        query = {"_id": seen.scope, "owner": seen.owner, "epoch": seen.epoch}
        until = {"$min": ["$until", "$$NOW"]}
        change = {"owner": "", "epoch": epoch, "until": until, "wanted_by": ""}
        where = self._where(seen.scope)
        return await self._records.find_and_modify(query, [{"$set": change}], where) is not None

    async def ask(self, seen: Lease, member: str) -> None:
        query = {"_id": seen.scope, "owner": seen.owner, "epoch": seen.epoch}
        update = {"q": query, "u": {"$set": {"wanted_by": member}}}
        await self._records.update_all([update], self._where(seen.scope))

    async def leave(self, member: str) -> None:
        await self._records.delete(f"{_MEMBER}{member}", self._name)

    def _where(self, scope: str) -> str:
        return f"{self._name}, scope {scope!r}"


def _later(seconds: float) -> Mapping[str, Any]:
    return {"$add": ["$$NOW", round(seconds * 1000)]}


def _heartbeat(member: Member, until: Mapping[str, Any]) -> Mapping[str, Any]:
    about = {
        "name": member.name,
        "max_scopes": member.max_scopes,
        "leaving": member.leaving,
        "scopes": sorted(member.scopes),
    }
    joined = {"$ifNull": ["$joined", "$$NOW"]}
    return {
        "q": {"_id": f"{_MEMBER}{member.id}"},
        "u": [{"$set": {**_literal(about), "joined": joined, "until": until}}],
        "upsert": True,
    }


def _literal(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Values as literals in a pipeline: text that begins with ``$`` must not become a path."""
    return {name: {"$literal": value} for name, value in values.items()}


def _lease(document: Mapping[str, Any]) -> Lease:
    return Lease(
        document["_id"],
        document["epoch"],
        document["owner"],
        document["left"] / 1000,
        document["wanted_by"],
    )


def _member(document: Mapping[str, Any]) -> Member:
    return Member(
        document["_id"].removeprefix(_MEMBER),
        document["name"],
        document["max_scopes"],
        document["leaving"],
        document["age"] / 1000,
        frozenset(document["scopes"]),
    )
