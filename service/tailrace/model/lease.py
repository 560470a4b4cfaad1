"""Leases: which process follows which scope, and until when, by the clock of the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

boot_clock: Callable[[], float] = partial(
    time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
)
"""Seconds since the machine was started, including while it slept. Nobody can set this clock."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of a scope, as read from the store.

    ``owner`` is a member's ``id``; empty after a release. ``epoch`` grows with each acquisition.
    ``seconds_left`` counts from the read; if 0 or negative, the lease ran out that long ago.
    ``wanted_by`` is the member that has asked the owner to hand the scope over.
    """

    scope: str
    epoch: int = 0
    owner: str = ""
    seconds_left: float = 0.0
    wanted_by: str = ""

    @property
    def free(self) -> bool:
        """Whether the lease could be acquired when it was read."""
        return self.seconds_left <= 0


@dataclass(frozen=True, slots=True)
class Member:
    """A process that shares the scopes.

    ``id`` identifies the process: its name, its host and a random part. ``name`` outlives the
    process. It follows at most ``max_scopes`` (0: any number). ``leaving``: it takes no more.
    """

    id: str
    name: str
    max_scopes: int = 0
    leaving: bool = False
    age_seconds: float = 0.0
    """Seconds since it joined."""
    scopes: frozenset[str] = frozenset()
    """The scopes that it configures; empty if that is not known."""
    report: str = ""
    """What it says of the scopes that it follows (:mod:`tailrace.replicas.scope_reports`)."""

    @classmethod
    def named(cls, name: str, host: str, nonce: str, max_scopes: int = 0) -> Member:
        """A new process. No name has a slash."""
        return cls(f"{name}/{host}/{nonce}", name, max_scopes)

    @property
    def host(self) -> str:
        """The host of the process."""
        return self.id.removeprefix(f"{self.name}/").rpartition("/")[0]

    def configures(self, scope: str) -> bool:
        """Whether it can follow the scope; yes if that is not known."""
        return not self.scopes or scope in self.scopes


@dataclass(frozen=True, slots=True)
class LeaseTable:
    """The content of the store at one moment: every lease by its scope, and the live members.

    ``unreadable``: by the scope of a lease, or ``member:<id>``, where the record is, why it cannot
    be read, and what to do.
    """

    leases: Mapping[str, Lease]
    members: Sequence[Member]
    unreadable: Mapping[str, str] = field(default_factory=dict)

    def of(self, scopes: Collection[str]) -> LeaseTable:
        """Only the leases of these scopes and of those that live members configure; other scopes
        are not configured any more."""
        configured = frozenset(scopes).union(*(member.scopes for member in self.members))
        leases = {scope: self.leases[scope] for scope in self.leases if scope in configured}
        return LeaseTable(leases, self.members, unreadable=self.unreadable)

    def alive(self, member: str) -> bool:
        """Whether the member with this id is alive."""
        return any(each.id == member for each in self.members)

    def name(self, member: str) -> str:
        """The name of a member by its id; the id if the member is not alive any more."""
        return next((each.name for each in self.members if each.id == member), member)
