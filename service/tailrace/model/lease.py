"""Leases: which process follows which scope, and for how long, by the clock of the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


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
    """What the store says at one moment: every lease by its scope, and the members alive."""

    leases: Mapping[str, Lease]
    members: Sequence[Member]

    def of(self, scopes: Collection[str]) -> Sharing:
        """Without the leases of other scopes, which are not configured any more."""
        kept = {scope: lease for scope, lease in self.leases.items() if scope in scopes}
        return Sharing(kept, self.members)

    def name(self, member: str) -> str:
        """That of a member by its id; its id where it is not alive any more."""
        return next((each.name for each in self.members if each.id == member), member)
