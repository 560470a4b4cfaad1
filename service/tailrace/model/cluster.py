"""The identity of the cluster to which a position belongs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """A replica set's name, or ``mongos``, and the id from its creation ("" if unknown).

    A server may accept a token of another cluster, and then events would be lost.
    """

    name: str
    unique: str = ""

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
