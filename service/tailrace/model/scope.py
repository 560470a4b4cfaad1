"""What one watcher follows."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scope:
    """A collection, a database (no collection) or the whole cluster (neither).

    ``trace``: the field in which documents carry their trace; empty: none.
    """

    name: str
    database: str | None = None
    collection: str | None = None
    trace: str = ""

    @property
    def kind(self) -> str:
        """``collection``, ``database`` or ``cluster``."""
        if self.collection is not None:
            return "collection"
        return "database" if self.database is not None else "cluster"

    @property
    def target(self) -> str:
        """What is followed, without the scope's name: ``collection shop.orders``."""
        return self.kind if self.database is None else f"{self.kind} {self}"

    @property
    def command_database(self) -> str:
        """The database on which the aggregate runs: ``admin`` for the cluster (specification)."""
        return self.database if self.database is not None else "admin"

    def covers(self, database: str, collection: str | None) -> bool:
        """Whether it follows the collection."""
        return self.database in (None, database) and self.collection in (None, collection)

    def __str__(self) -> str:
        if self.database is None:
            return "cluster"
        return self.database if self.collection is None else f"{self.database}.{self.collection}"
