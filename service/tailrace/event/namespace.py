"""Where a change happened: database and collection."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Namespace(NamedTuple):
    """Where a change happened. ``coll`` is ``None`` for changes of a whole database."""

    db: str
    coll: str | None = None

    def __str__(self) -> str:
        return self.db if self.coll is None else f"{self.db}.{self.coll}"


def namespace(value: Mapping[str, Any] | None) -> Namespace | None:
    """The namespace that a document names; ``None`` if it names no database."""
    database, collection = (value.get("db"), value.get("coll")) if value else (None, None)
    if type(database) is not str:
        return None
    return Namespace(database, collection if type(collection) is str else None)
