"""Which member should follow which scope (rendezvous hashing with bounded loads), and what a member
does about it.

Each scope ranks all members by a hash of both names (Thaler, Ravishankar: A name-based mapping
scheme for rendezvous, 1996), and belongs to the first one that follows less than its fair share
(Mirrokni, Thorup, Zadimoghaddam: Consistent hashing with bounded loads, 2018). So a member that
joins or leaves moves few scopes.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from tailrace.model.lease import Lease, LeaseTable, Member
from tailrace.replicas.times import LeaseTimes


def assignment(scopes: Iterable[str], members: Sequence[Member]) -> Mapping[str, str]:
    """The id of the preferred member by scope; a scope is left out if every member is full.

    The result depends only on the names of the scopes, and on the names, ids, ``scopes`` and
    ``max_scopes`` of the members.
    """
    names = frozenset(scopes)
    ranked = _ranked(names, members)
    return _assigned([(ranked, fair_share(len(names), members)), (ranked, len(names))], Counter())


def fair_share(scopes: int, members: Sequence[Member]) -> int:
    """The most scopes that one member should follow: ⌈scopes ÷ members⌉; more only if the
    ``max_scopes`` of the other members leave no other choice."""
    return next(
        (
            share
            for share in range(scopes)
            if sum(min(each.max_scopes or scopes, share) for each in members) >= scopes
        ),
        scopes,
    )


_Pairs = Sequence[tuple[str, Member]]
"""Each scope with a member that may follow it, the most preferred first."""


def _assigned(rounds: Iterable[tuple[_Pairs, int]], held: Counter[str]) -> dict[str, str]:
    """The member's id by scope, for members that already follow as many as ``held`` says.

    In each round, its members get scopes until they follow that many.
    """
    members_by_scope, taken = dict[str, str](), Counter(held)
    for pairs, most in rounds:
        for scope, member in pairs:
            room = min(most, member.max_scopes or most) - taken[member.id]
            if scope not in members_by_scope and room > 0:
                members_by_scope[scope] = member.id
                taken[member.id] += 1
    return members_by_scope


def _ranked(scopes: Iterable[str], members: Sequence[Member]) -> _Pairs:
    """Each scope with the members that configure it, by rank.

    Scopes that few members configure come before: later these members might have no room.
    """
    able = {scope: [each for each in members if each.configures(scope)] for scope in scopes}
    return [
        (scope, member)
        for scope in sorted(able, key=lambda scope: (len(able[scope]), scope))
        for member in sorted(able[scope], key=lambda each: _rank(scope, each), reverse=True)
    ]


def _rank(scope: str, member: Member) -> tuple[bytes, str]:
    """Of members with one name (one replaces the other), the greater id comes first."""
    # The name of a scope never has a NUL.
    text = f"{scope}\0{member.name}".encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=8).digest(), member.id


@dataclass(frozen=True, slots=True)
class Intent:
    """The leases that a member tries to acquire, and those that it requests from their owners."""

    acquire: Sequence[Lease] = ()
    request: Sequence[Lease] = ()


def intent(
    table: LeaseTable,
    me: Member,
    waiting: Collection[str],
    times: LeaseTimes,
    *,
    held: int,
    stable: bool,
) -> Intent:
    """What a member with ``held`` leases does for the scopes for which it is ``waiting``.

    It acquires a free lease if it is the preferred member, or if nobody has acquired the lease for
    a while. It requests a lease from its owner if it is the preferred member, but only while
    members are ``stable``.
    """
    members = [each for each in table.members if not each.leaving]
    if me.leaving or all(each.id != me.id for each in members):
        return Intent()
    target = assignment(table.leases, members)
    share = fair_share(len(table.leases), members)
    first = _takers(table, members, target, share, times)
    acquire, request = [], []
    for scope in waiting:
        lease = table.leases.get(scope)
        if lease is None:
            continue
        if lease.free:
            if first.get(scope) == me.id or lease.seconds_left <= -times.patience:
                acquire.append(lease)
        elif stable and target.get(scope) == me.id not in (lease.owner, lease.wanted_by):
            request.append(lease)
    room = max(me.max_scopes - held, 0) if me.max_scopes else len(waiting)
    # It may hold a scope that another member is to get: so it requests one beyond its share.
    most = min(room - len(acquire), max(share - held - len(acquire), 1))
    return Intent(acquire[:room], request[: max(most, 0)])


def _takers(
    table: LeaseTable,
    members: Sequence[Member],
    target: Mapping[str, str],
    share: int,
    times: LeaseTimes,
) -> Mapping[str, str]:
    """By free scope, the member that acquires the lease, other than members that are full.

    The first choice is the member that requested it, then the one that should have it, then members
    that have just joined.
    """
    free = {scope: lease for scope, lease in table.leases.items() if lease.free}
    if not free:
        return {}
    held = Counter(lease.owner for lease in table.leases.values() if not lease.free)
    recruits = _recruits(members, times.stable)
    alive = {each.id: each for each in members}
    young = {each.id: each for each in recruits or members}
    requested = [
        (scope, alive[to]) for scope, each in free.items() if (to := each.wanted_by) in alive
    ]
    home = [(scope, young[to]) for scope in free if (to := target.get(scope, "")) in young]
    ranked, whole = _ranked(free, members), len(table.leases)
    rounds = [(requested, whole), (home, whole), (_ranked(free, recruits), share)]
    return _assigned([*rounds, (ranked, share), (ranked, whole)], held)


def _recruits(members: Sequence[Member], seconds: float) -> Sequence[Member]:
    """The latest members that joined less than ``seconds`` apart, the last one just now.

    In a rolling update these members will stay, while the others are about to leave.
    """
    recruits, before = [], 0.0
    for member in sorted(members, key=lambda candidate: candidate.age_seconds):
        if member.age_seconds - before >= seconds:
            break
        recruits.append(member)
        before = member.age_seconds
    return recruits
