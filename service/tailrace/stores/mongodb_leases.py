"""Leases in a collection of a replica set, by the clock of its primary (``$$NOW``).

``leases`` has one document per lease, whose ``_id`` is the lease's name, and one per member,
``member:<id>`` (no scope name has a colon). A lease is never deleted: its epoch would start again.
Documents are created separately, since the server refuses ``$expr`` in an upsert (code 224).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bson.datetime_ms import DatetimeMS

from tailrace.model.lease import Lease, LeaseTable, Member
from tailrace.stores.lease_records import read_table
from tailrace.stores.mongodb_collection import RecordCollection

_MEMBER = "member:"
_FORGET_MS = 3_600_000
"""How long after its heartbeat expired a member that has not left is forgotten."""

_LONG_AGO, _FAR = DatetimeMS(0), DatetimeMS(2**53)
_LIVE = {"$expr": {"$gt": ["$until", "$$NOW"]}}
_FREE = {"$expr": {"$lte": ["$until", "$$NOW"]}}
_NO_MEMBER = {"$or": [{"_id": {"$lt": _MEMBER}}, {"_id": {"$gte": "member;"}}]}


def _typed(name: str, *types: str) -> Mapping[str, Any]:
    """The value of a field, or null if it has none of these types. A date that Python cannot have,
    or an operator that fails on one document, would fail the whole read."""
    return {"$cond": [{"$in": [{"$type": f"${name}"}, types]}, f"${name}", None]}


def _since(name: str, difference: Sequence[str]) -> Mapping[str, Any]:
    """The milliseconds between two times, or null if the field is not a date, or a far one."""
    date = {"$and": [{"$gte": [f"${name}", _LONG_AGO]}, {"$lt": [f"${name}", _FAR]}]}
    return {"$cond": [date, {"$subtract": difference}, None]}


_TEXTS = {"input": "$scopes", "cond": {"$eq": [{"$type": "$$this"}, "string"]}}
# The server leaves out members that are not alive.
_READ: tuple[Mapping[str, Any], ...] = (
    {"$match": {"_id": {"$type": "string"}, "$or": [_NO_MEMBER, _LIVE]}},
    {
        "$project": {
            "epoch": _typed("epoch", "int", "long"),
            "owner": _typed("owner", "string"),
            "wanted_by": _typed("wanted_by", "string"),
            "left": _since("until", ["$until", "$$NOW"]),
            "name": _typed("name", "string"),
            "max_scopes": _typed("max_scopes", "int", "long"),
            "leaving": _typed("leaving", "bool"),
            "report": {"$ifNull": [_typed("report", "string"), ""]},
            "age": _since("joined", ["$$NOW", "$joined"]),
            "scopes": {"$cond": [{"$isArray": "$scopes"}, {"$filter": _TEXTS}, None]},
        }
    },
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
        members = {"_id": {"$gte": _MEMBER, "$lt": "member;"}, "$expr": dead}
        await self._records.delete_all(members, self._name)

    async def read(self) -> LeaseTable:
        found = await self._records.aggregate(
            *_READ, where=self._name, limit=_MOST, level="majority"
        )
        members = [_member(each) for each in found if each["_id"].startswith(_MEMBER)]
        leases = [_lease(each) for each in found if not each["_id"].startswith(_MEMBER)]
        return read_table(leases, members, lambda name: f"{self._name}, document {name!r}")

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

    async def request(self, seen: Lease, member: str) -> None:
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
        "report": member.report,
        "scopes": sorted(member.scopes),
    }
    joined = {"$cond": [{"$eq": [{"$type": "$joined"}, "date"]}, "$joined", "$$NOW"]}
    return {
        "q": {"_id": f"{_MEMBER}{member.id}"},
        "u": [{"$set": {**_literal(about), "joined": joined, "until": until}}],
        "upsert": True,
    }


def _literal(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Values as literals in a pipeline: text that begins with ``$`` must not become a path."""
    return {name: {"$literal": value} for name, value in values.items()}


def _lease(document: Mapping[str, Any]) -> Mapping[str, Any]:
    fields = {name: document[name] for name in ("epoch", "owner", "wanted_by")}
    return {"scope": document["_id"], "seconds_left": _seconds(document["left"]), **fields}


def _member(document: Mapping[str, Any]) -> Mapping[str, Any]:
    fields = {name: document[name] for name in ("name", "max_scopes", "leaving", "report")}
    return {
        "id": document["_id"].removeprefix(_MEMBER),
        "age_seconds": _seconds(document["age"]),
        "scopes": None if document["scopes"] is None else frozenset(document["scopes"]),
        **fields,
    }


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
