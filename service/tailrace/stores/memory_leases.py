"""Leases in memory: for tests, where several members run in one process."""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from tailrace.model.lease import Lease, LeaseTable, Member


@dataclass(slots=True)
class _Until:
    lease: Lease
    until: float


class MemoryLeases:
    """A :class:`tailrace.replicas.ports.LeaseStore`, by a ``clock`` in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._leases: dict[str, _Until] = {}
        self._members: dict[str, tuple[Member, float, float]] = {}
        """By id: the member, when it joined, and until when it counts as alive."""

    async def prepare(self, scopes: Collection[str]) -> None:
        for scope in scopes:
            self._leases.setdefault(scope, _Until(Lease(scope), self._clock()))

    async def read(self) -> LeaseTable:
        now = self._clock()
        leases = [
            replace(each.lease, seconds_left=each.until - now) for each in self._leases.values()
        ]
        members = [
            replace(member, age_seconds=now - joined)
            for member, joined, until in self._members.values()
            if until > now
        ]
        return LeaseTable({each.scope: each for each in leases}, members)

    async def acquire(self, seen: Lease, owner: str, epoch: int, seconds: float) -> bool:
        now, stored = self._clock(), self._leases[seen.scope]
        free = stored.until <= now or stored.lease.owner == owner
        if stored.lease.epoch != seen.epoch or not free:
            return False
        self._leases[seen.scope] = _Until(Lease(seen.scope, epoch, owner), now + seconds)
        return True

    async def renew(
        self, owner: str, scopes: Collection[str], seconds: float, heartbeat: Member | None = None
    ) -> int:
        now = self._clock()
        if heartbeat is not None:
            _, joined, _ = self._members.get(heartbeat.id, (heartbeat, now, now))
            self._members[heartbeat.id] = heartbeat, joined, now + seconds
        held = [
            entry
            for scope, entry in self._leases.items()
            if scope in scopes and entry.lease.owner == owner and entry.until > now
        ]
        for entry in held:
            entry.until = now + seconds
        return len(held)

    async def release(self, scope: str, owner: str, epoch: int) -> None:
        stored = self._leases[scope]
        if (stored.lease.owner, stored.lease.epoch) == (owner, epoch):
            stored.lease = replace(stored.lease, owner="")
            stored.until = min(stored.until, self._clock())

    async def free(self, seen: Lease, epoch: int) -> bool:
        stored = self._leases[seen.scope]
        if (stored.lease.owner, stored.lease.epoch) != (seen.owner, seen.epoch):
            return False
        until = min(stored.until, self._clock())
        self._leases[seen.scope] = _Until(Lease(seen.scope, epoch), until)
        return True

    async def request(self, seen: Lease, member: str) -> None:
        stored = self._leases[seen.scope]
        if (stored.lease.owner, stored.lease.epoch) == (seen.owner, seen.epoch):
            stored.lease = replace(stored.lease, wanted_by=member)

    async def leave(self, member: str) -> None:
        self._members.pop(member, None)
