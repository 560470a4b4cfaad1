"""Leases in the SQLite file, for processes of one machine, by the clock that counts from its boot.

All these processes share the clock, and nobody can set it. A lease from before a reboot has ended.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tailrace.errors import LeaseError
from tailrace.model.lease import Lease, LeaseTable, Member, boot_clock
from tailrace.stores.lease_records import read_table
from tailrace.stores.sqlite_file import Result, SqliteFile

_FORGET_SECONDS = 3600
"""How long after its heartbeat expired a member that has not left is forgotten."""

_PREPARE = "INSERT INTO leases VALUES (?, 0, '', '', '', 0) ON CONFLICT (scope) DO NOTHING"
_ACQUIRE = """
UPDATE leases SET epoch = ?, owner = ?, wanted_by = '', boot = ?, until = ?
WHERE scope = ? AND epoch = ? AND (boot <> ? OR until <= ? OR owner = ?)
"""
_RENEW = """
UPDATE leases SET until = ?
WHERE owner = ? AND boot = ? AND until > ? AND scope IN (SELECT value FROM json_each(?))
"""
_HEARTBEAT = """
INSERT INTO members VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE
SET leaving = excluded.leaving, until = excluded.until, report = excluded.report
"""
_CONFIGURES = """
INSERT INTO member_scopes SELECT ?, value FROM json_each(?) WHERE true ON CONFLICT DO NOTHING
"""
# A value of another type than its column's becomes NULL. Text comes as blobs: if it is not UTF-8,
# only its record must fail.
_LEASES = """
SELECT CAST(scope AS BLOB),
    CASE typeof(epoch) WHEN 'integer' THEN epoch END,
    CASE typeof(owner) WHEN 'text' THEN CAST(owner AS BLOB) END,
    CASE typeof(wanted_by) WHEN 'text' THEN CAST(wanted_by AS BLOB) END,
    CASE typeof(boot) WHEN 'text' THEN CAST(boot AS BLOB) END,
    CASE typeof(until) WHEN 'real' THEN until END
FROM leases
"""
_MEMBERS = """
SELECT CAST(id AS BLOB),
    CASE typeof(name) WHEN 'text' THEN CAST(name AS BLOB) END,
    CASE typeof(max_scopes) WHEN 'integer' THEN max_scopes END,
    CASE typeof(leaving) WHEN 'integer' THEN leaving END,
    CASE typeof(joined) WHEN 'real' THEN joined END,
    (SELECT json_group_array(scope) FROM member_scopes WHERE member = id),
    CASE typeof(report) WHEN 'text' THEN CAST(report AS BLOB) END
FROM members WHERE boot = ? AND until > ? AND typeof(until) = 'real'
"""
_FORGET = (
    "DELETE FROM members WHERE boot <> ? OR until < ?",
    "DELETE FROM member_scopes WHERE member NOT IN (SELECT id FROM members)",
)
_RELEASE = """
UPDATE leases SET owner = '', until = min(until, ?) WHERE scope = ? AND owner = ? AND epoch = ?
"""
_FREE = """
UPDATE leases SET owner = '', epoch = ?, wanted_by = '', until = min(until, ?)
WHERE scope = ? AND owner = ? AND epoch = ?
"""
_ASK = "UPDATE leases SET wanted_by = ? WHERE scope = ? AND owner = ? AND epoch = ?"


class SqliteLeases:
    """A :class:`tailrace.replicas.ports.LeaseStore`."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._boot = _boot()

    async def prepare(self, scopes: Collection[str]) -> None:
        for scope in scopes:
            await self._run(_PREPARE, scope)
        await self._run(_FORGET[0], self._boot, boot_clock() - _FORGET_SECONDS)
        await self._run(_FORGET[1])

    async def read(self) -> LeaseTable:
        now = boot_clock()
        leases = await self._run(_LEASES)
        members = await self._run(_MEMBERS, self._boot, now)
        return read_table(
            [self._lease(row, now) for row in leases.rows],
            [
                {
                    "id": _text(identity),
                    "name": _text(name),
                    "max_scopes": most,
                    "leaving": None if leaving is None else bool(leaving),
                    "age_seconds": None if joined is None else now - joined,
                    "scopes": frozenset(json.loads(scopes)),
                    "report": _text(report) or "",
                }
                for identity, name, most, leaving, joined, scopes, report in members.rows
            ],
            lambda name: f"{self._file.path}, leases, row {name!r}",
        )

    def _lease(self, row: Sequence[Any], now: float) -> Mapping[str, Any]:
        scope, epoch, owner, wanted_by, boot, until = row
        end = until if _text(boot) == self._boot else 0.0  # before this boot
        return {
            "scope": scope.decode(errors="replace"),
            "epoch": epoch,
            "owner": _text(owner),
            "wanted_by": _text(wanted_by),
            "seconds_left": None if until is None or boot is None else end - now,
        }

    async def acquire(self, seen: Lease, owner: str, epoch: int, seconds: float) -> bool:
        now = boot_clock()
        taken = (epoch, owner, self._boot, now + seconds)
        found = await self._run(_ACQUIRE, *taken, seen.scope, seen.epoch, self._boot, now, owner)
        return found.changed == 1

    async def renew(
        self, owner: str, scopes: Collection[str], seconds: float, heartbeat: Member | None = None
    ) -> int:
        now, boot = boot_clock(), self._boot
        renewal = (now + seconds, owner, boot, now, json.dumps(list(scopes)))
        statements: list[tuple[str, Sequence[Any]]] = [(_RENEW, renewal)]
        if (member := heartbeat) is not None:  # after the leases, which are more urgent
            about = (member.id, member.name, member.max_scopes, member.leaving)
            beat = (*about, boot, now, now + seconds, member.report)
            configures = (member.id, json.dumps(sorted(member.scopes)))
            statements += [(_CONFIGURES, configures), (_HEARTBEAT, beat)]
        # In one turn: each would wait for the saves of all scopes, whose disk may be slow.
        renewed, *_ = await self._file.run_all(statements, ", leases", LeaseError)
        return renewed.changed

    async def release(self, scope: str, owner: str, epoch: int) -> None:
        await self._run(_RELEASE, boot_clock(), scope, owner, epoch)

    async def free(self, seen: Lease, epoch: int) -> bool:
        freed = await self._run(_FREE, epoch, boot_clock(), seen.scope, seen.owner, seen.epoch)
        return freed.changed == 1

    async def request(self, seen: Lease, member: str) -> None:
        await self._run(_ASK, member, seen.scope, seen.owner, seen.epoch)

    async def leave(self, member: str) -> None:
        await self._run("DELETE FROM members WHERE id = ?", member)

    async def _run(self, sql: str, *values: Any) -> Result:
        return await self._file.run(sql, values, ", leases", LeaseError)


def _boot() -> str:
    """An id of the machine's current boot; empty if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _text(value: bytes | None) -> str | None:
    """The text in a blob; ``None`` if it is not UTF-8."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
