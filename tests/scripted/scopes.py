"""Which changes of the oplog a change stream sees, and which of them end it."""

from __future__ import annotations

from dataclasses import dataclass

from bson.timestamp import Timestamp


@dataclass(frozen=True, slots=True)
class Namespace:
    """A database, or a collection in it."""

    database: str
    collection: str | None = None

    @classmethod
    def parse(cls, text: str) -> Namespace:
        """`shop.orders` is a collection, `shop` a database."""
        database, _, collection = text.partition(".")
        return cls(database, collection or None)

    def __str__(self) -> str:
        return self.database if self.collection is None else f"{self.database}.{self.collection}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One change as the client gets it, with what routing needs to know.

    Without a namespace it goes to every stream.
    """

    raw: bytes
    token: bytes
    time: Timestamp
    operation: str
    namespace: Namespace | None
    renamed_to: Namespace | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of a stream: a collection, a database, or everything."""

    database: str | None = None
    collection: str | None = None

    @property
    def cursor_namespace(self) -> str:
        """The `ns` of the stream's cursor, as in mongod's replies."""
        if self.database is None:
            return "admin.$cmd.aggregate"
        return f"{self.database}.{self.collection or '$cmd.aggregate'}"

    def sees(self, entry: Entry) -> bool:
        """Whether a stream of this scope gets the change."""
        where = entry.namespace
        if where is None:
            return True
        if entry.operation == "invalidate":  # scripted by hand for exactly one scope
            return (where.database, where.collection) == (self.database, self.collection)
        return any(
            self.database in (None, each.database) and self.collection in (None, each.collection)
            for each in (where, entry.renamed_to)
            if each is not None
        )

    def invalidated_by(self, entry: Entry) -> bool:
        """Whether mongod sends an invalidate after the change to a stream of this scope."""
        if self.database is None or entry.namespace is None:
            return False
        if entry.operation == "dropDatabase":
            return entry.namespace.database == self.database
        ends_collection = entry.operation in ("drop", "rename")
        return self.collection is not None and ends_collection and self.sees(entry)
