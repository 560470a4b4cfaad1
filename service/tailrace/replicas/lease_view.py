"""What a process last read of the leases and members of its store.

It ages: after the end of a lease, as it was read, the process does not know who follows the scope.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tailrace.engine.held_lease import ObservedLease, ScopeReport
from tailrace.model.lease import Lease, LeaseTable, Member
from tailrace.replicas.scope_reports import read_reports
from tailrace.replicas.times import LeaseTimes


@dataclass(eq=False)
class LeaseView:
    """The view of one process, by its ``clock``."""

    times: LeaseTimes
    clock: Callable[[], float]
    table: LeaseTable | None = None
    """The content of the store when it was last read."""
    _failure: str = ""
    """Why the last read failed; empty if it did not."""
    _read_at: float = 0.0
    _reports: Mapping[str, Mapping[str, ScopeReport]] = field(default_factory=dict)
    """By a member's id, what it says of its scopes."""

    def took(self, table: LeaseTable, sent: float) -> None:
        """Notes an answer to a read that was sent at ``sent``."""
        self.table, self._read_at, self._failure = table, sent, ""
        self._reports = {member.id: read_reports(member.report) for member in table.members}

    def failed(self, why: str) -> None:
        """Notes that the last read failed."""
        self._failure = why

    def until_expiry(self, most: float) -> float:
        """Seconds until a lease expires, counted from the read, but at most ``most``."""
        leases = self.table.leases.values() if self.table is not None else ()
        return min([most, *(lease.seconds_left for lease in leases if not lease.free)])

    @property
    def members(self) -> Sequence[Member]:
        """The members that were alive; empty once their heartbeats have expired since the read."""
        if self.table is None or self._age >= self.times.lease:
            return ()
        return self.table.members

    def observed(self, scope: str, me: str) -> ObservedLease | None:
        """What is known of a lease that the member ``me`` does not hold; ``None`` before the first
        read."""
        if self.table is None:
            return None
        if scope not in self.table.leases:
            reason = self.table.unreadable.get(scope, "no process follows it: it has no lease yet")
            return ObservedLease("", 0, held=False, reason=reason)
        lease, age = self.table.leases[scope], self._age
        held = not lease.free and lease.owner != me
        if age >= (min(lease.seconds_left, self.times.lease) if held else self.times.lease):
            why = f": {self._failure}" if self._failure else ""
            reason = f"which process follows it is not known: the leases were read {age:.0f} s ago"
            return ObservedLease(None, lease.epoch, held=False, reason=f"{reason}{why}")
        if not held:
            return ObservedLease("", lease.epoch, held=False, reason="no process follows it")
        if self.table.alive(lease.owner):
            owner = self.table.name(lease.owner)
            doubt = f", as far as is known: {self._failure}" if self._failure else ""
            report = self._reports.get(lease.owner, {}).get(scope)
            reason = f"{owner} follows it{doubt}"
            return ObservedLease(owner, lease.epoch, held=False, reason=reason, report=report)
        reason = f"no process follows it: {abandoned(lease, lease.seconds_left - age)}"
        return ObservedLease("", lease.epoch, held=False, reason=reason)

    def document(self, me: str) -> Sequence[Mapping[str, object]]:
        """The members for ``/status``, in JSON types."""
        leases = self.table.leases.values() if self.table is not None else ()
        return [
            {
                "name": member.name,
                "this": member.id == me,
                "leaving": member.leaving,
                "age_seconds": round(member.age_seconds + self._age),
                "max_scopes": member.max_scopes or None,
                "scopes": sorted(
                    lease.scope
                    for lease in leases
                    if lease.owner == member.id and lease.seconds_left > self._age
                ),
            }
            for member in sorted(self.members, key=lambda other: other.name)
        ]

    @property
    def _age(self) -> float:
        return max(self.clock() - self._read_at, 0.0)


def abandoned(lease: Lease, seconds_left: float) -> str:
    """Says that the owner of a lease is not alive, and what the operator can do."""
    return (
        f"its lease belongs to {lease.owner or 'no member'}, which is not a live member, and "
        f"expires in {seconds_left:.0f} s. 'tailrace scopes release {lease.scope}' frees it now"
    )
