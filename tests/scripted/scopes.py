"""Which entries of the oplog a change stream sees, and which of them end it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Namespace:
    """A database, and a collection of it unless the whole database is meant."""

    database: str
    collection: str | None = None

    @classmethod
    def parse(cls, text: str) -> Namespace:
        """`shop.orders` is a collection, `shop` a database."""
        database, _, collection = text.partition(".")
        return cls(database, collection or None)

    def __str__(self) -> str:
        return self.database if self.collection is None else f"{self.database}.{self.collection}"


class Change(Protocol):
    """What a scope asks of an oplog entry."""

    @property
    def operation(self) -> str:
        """The operation type."""

    @property
    def namespace(self) -> Namespace | None:
        """Where it happened; None is everywhere."""

    @property
    def renamed_to(self) -> Namespace | None:
        """The new name that a rename gives."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A collection, a database, or (without both) the whole cluster."""

    database: str | None = None
    collection: str | None = None

    @property
    def cursor_namespace(self) -> str:
        """The `ns` of the stream's cursor, as mongod names it."""
        if self.database is None:
            return "admin.$cmd.aggregate"
        return f"{self.database}.{self.collection or '$cmd.aggregate'}"

    def sees(self, change: Change) -> bool:
        """Whether the change is delivered to a stream of this scope."""
        where = change.namespace
        if where is None:
            return True
        if change.operation == "invalidate":  # scripted by hand for exactly one scope
            return (where.database, where.collection) == (self.database, self.collection)
        if self.database is None:
            return True
        if where.database == self.database and self.collection in (None, where.collection):
            return True
        to = change.renamed_to
        return to is not None and (
            to.database == self.database and self.collection in (None, to.collection)
        )

    def invalidated_by(self, change: Change) -> bool:
        """Whether mongod follows the change with an invalidate for a stream of this scope."""
        if self.database is None or change.namespace is None:
            return False
        if change.operation == "dropDatabase":
            return change.namespace.database == self.database
        return (
            self.collection is not None
            and change.operation in ("drop", "rename")
            and self.sees(change)
        )
