"""The identity of the cluster to which a position belongs."""

from __future__ import annotations

from dataclasses import dataclass

SHARDED = "mongos"
"""The name of every sharded cluster."""


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """A replica set's name, or :data:`SHARDED`, and the id from its creation ("" if unknown).

    A server may accept a token of another cluster, and then events would be lost.
    """

    name: str
    unique: str = ""

    @property
    def doubt(self) -> str:
        """Why the cluster cannot be told from another one, and what to do; empty if it can."""
        if self.unique:
            return ""
        right = "the action replSetGetConfig on the cluster"
        if self.name == SHARDED:
            right = "the action find on config.version"
        return (
            "the user may not read the cluster's id, so a checkpoint of another cluster with the "
            f"name {self.name!r} is accepted, and its token can skip changes silently: grant "
            f"{right} (the role clusterMonitor has it)"
        )

    def __str__(self) -> str:
        return f"{self.name}/{self.unique}"

    @classmethod
    def parse(cls, text: str) -> ClusterIdentity:
        """Reads what ``str`` wrote."""
        name, _, unique = text.rpartition("/")
        return cls(name, unique)

    def may_be(self, other: ClusterIdentity) -> bool:
        """Whether both can be the same cluster: by id if both ids are known, else by name."""
        if self.unique and other.unique:
            return self.unique == other.unique
        return self.name == other.name
