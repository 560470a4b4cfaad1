"""Leases: which process follows which scope, and for how long, by the clock of the store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

_REPLAY = "replay:"


def replay_lease(scope: str) -> str:
    """The name of the lease to replay a scope's dead letters: no scope's name has a colon."""
    return f"{_REPLAY}{scope}"


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of a scope, as it was read.

    ``owner`` is a member's ``id``; empty once it was released. ``epoch`` grows by each acquisition.
    ``seconds_left`` counts from the reading; 0 and less: so long ago it ran out. ``wanted_by`` is
    the member that has asked the owner to hand the scope over.
    """

    scope: str
    epoch: int = 0
    owner: str = ""
    seconds_left: float = 0.0
    wanted_by: str = ""

    @property
    def free(self) -> bool:
        """Whether it could be acquired when it was read."""
        return self.seconds_left <= 0


@dataclass(frozen=True, slots=True)
class Member:
    """A process that shares the scopes.

    ``id`` is that of the process, ``name`` is what people know it by and outlives it. It follows no
    more than ``max_scopes`` (0: any number). ``leaving``: it takes no more scopes.
    """

    id: str
    name: str
    max_scopes: int = 0
    leaving: bool = False
    age_seconds: float = 0.0
    """Since it has joined."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """What the store says at one moment: every lease by its scope, and the members alive.

    ``replays`` has the leases to replay dead letters, by their names.
    """

    leases: Mapping[str, Lease]
    members: Sequence[Member]
    replays: Mapping[str, Lease] = field(default_factory=dict)

    @classmethod
    def of_all(cls, leases: Iterable[Lease], members: Sequence[Member]) -> Sharing:
        """Of whatever leases a store has."""
        scopes, replays = dict[str, Lease](), dict[str, Lease]()
        for lease in leases:
            kind = replays if lease.scope.startswith(_REPLAY) else scopes
            kind[lease.scope] = lease
        return cls(scopes, members, replays)

    def of(self, scopes: Collection[str]) -> Sharing:
        """Without the leases of other scopes, which are not configured any more."""
        kept = {scope: lease for scope, lease in self.leases.items() if scope in scopes}
        return Sharing(kept, self.members)

    def name(self, member: str) -> str:
        """That of a member by its id; its id where it is not alive any more."""
        return next((each.name for each in self.members if each.id == member), member)
