"""Which member should follow which scope: rendezvous hashing; and what a member does for that.

Each scope ranks all members by a hash of both names, and belongs to the first that may have more. A
member that joins or leaves changes nothing for the scopes that rank another one first
(Thaler, Ravishankar: A name-based mapping scheme for rendezvous, 1996).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from tailrace.model.lease import Lease, Member, Sharing
from tailrace.replicas.times import LeaseTimes


def assignment(scopes: Iterable[str], members: Sequence[Member]) -> Mapping[str, str]:
    """The id of a member by scope; a scope is left out where all have as many as they may have.

    It depends on nothing but the names of scopes, and the members' names, ids and bounds.
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
    """Of members of one name, as while one replaces another, the greater id comes first."""
    # No scope's name holds a NUL.
    text = f"{scope}\0{member.name}".encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=8).digest(), member.id


@dataclass(frozen=True, slots=True)
class Wishes:
    """Which leases a member tries to acquire, and which it asks their owners for."""

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
    """What a member that holds so many leases does for the scopes that it is ``waiting`` for.

    It acquires a free lease that it is the preferred member for; or any free one that nobody has
    acquired for a while. It asks for a lease that another member holds and that it should have, but
    only while members are ``stable``.
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
    """Those that joined one after another, no longer than ``seconds`` apart, up to now; else all.

    In a rolling update they are the ones that stay, while the others are about to leave.
    """
    found, before = [], 0.0
    for member in sorted(members, key=lambda each: each.age_seconds):
        if member.age_seconds - before >= seconds:
            break
        found.append(member)
        before = member.age_seconds
    return found or members
