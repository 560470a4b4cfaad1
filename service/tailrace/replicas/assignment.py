"""Which member should follow which scope (rendezvous hashing), and what a member does about it.

Each scope ranks all members by a hash of both names, and belongs to the first member that may have
more scopes. A member that joins or leaves affects only scopes that rank it first
(Thaler, Ravishankar: A name-based mapping scheme for rendezvous, 1996).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from tailrace.model.lease import Lease, Member, Sharing
from tailrace.replicas.times import LeaseTimes


def assignment(scopes: Iterable[str], members: Sequence[Member]) -> Mapping[str, str]:
    """The id of the preferred member by scope; a scope is left out if every member is full.

    The result depends only on the scopes' names and the members' names, ids and ``max_scopes``.
    """
    found: dict[str, str] = {}
    taken = Counter[str]()
    for scope in sorted(scopes):
        for member in sorted(members, key=lambda each: _weight(scope, each), reverse=True):
            if not member.max_scopes or taken[member.id] < member.max_scopes:
                found[scope] = member.id
                taken[member.id] += 1
                break
    return found


def _weight(scope: str, member: Member) -> tuple[bytes, str]:
    """Ranks a member for a scope. Of members with one name (one replaces the other), the greater id
    comes first."""
    # The name of a scope never has a NUL.
    text = f"{scope}\0{member.name}".encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=8).digest(), member.id


@dataclass(frozen=True, slots=True)
class Wishes:
    """The leases that a member tries to acquire, and those for which it asks their owners."""

    acquire: Sequence[Lease] = ()
    ask: Sequence[Lease] = ()


def wishes(
    sharing: Sharing,
    me: Member,
    waiting: Collection[str],
    times: LeaseTimes,
    *,
    held: int,
    stable: bool,
) -> Wishes:
    """What a member with ``held`` leases does for the scopes for which it is ``waiting``.

    It acquires a free lease if it is the preferred member, or if nobody has acquired the lease for
    a while. It asks the owner for a lease if it is the preferred member, but only while members
    are ``stable``.
    """
    members = [each for each in sharing.members if not each.leaving]
    if me.leaving or all(each.id != me.id for each in members):
        return Wishes()
    free = [scope for scope, lease in sharing.leases.items() if lease.free]
    first = assignment(free, _recruits(members, times.stable))
    target = assignment(sharing.leases, members)
    acquire, ask = [], []
    for scope in waiting:
        lease = sharing.leases.get(scope)
        if lease is None:
            continue
        if lease.free:
            if first.get(scope) == me.id or lease.seconds_left <= -times.patience:
                acquire.append(lease)
        elif stable and target.get(scope) == me.id not in (lease.owner, lease.wanted_by):
            ask.append(lease)
    room = max(me.max_scopes - held, 0) if me.max_scopes else len(waiting)
    return Wishes(acquire[:room], ask[: max(room - len(acquire), 0)])


def _recruits(members: Sequence[Member], seconds: float) -> Sequence[Member]:
    """The latest members that joined less than ``seconds`` apart, the last one just now; else all.

    In a rolling update these members will stay, while the others are about to leave.
    """
    found, before = [], 0.0
    for member in sorted(members, key=lambda each: each.age_seconds):
        if member.age_seconds - before >= seconds:
            break
        found.append(member)
        before = member.age_seconds
    return found or members
