"""Where checkpoints, gaps and dead letters are kept: one store for all of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tailrace.config.fields import DatabaseName, Section, Text, default_kind

COLLECTIONS = ("checkpoints", "dead_letters")
"""What a store in MongoDB writes to."""


class StoreSettings(Section):
    """Where checkpoints, gaps and dead letters are kept."""

    type: Literal["sqlite", "mongodb", "memory"]
    """`sqlite` (default), `mongodb`, or `memory`, which forgets."""


class SqliteStoreSettings(StoreSettings):
    """A local file: the default, because it needs nothing else."""

    type: Literal["sqlite"] = "sqlite"
    """Selects this store."""

    path: Text = "data/tailrace.db"
    """The file. It must outlive the process: on a volume, in a container."""


class MongodbStoreSettings(StoreSettings):
    """The server that is followed, for processes without a disk of their own."""

    type: Literal["mongodb"]
    """Selects this store."""

    database: DatabaseName = "tailrace"
    """The database, with the collections `checkpoints` and `dead_letters`, which are made where
    they are missing; none that a scope follows, or each save would be a change."""


class MemoryStoreSettings(StoreSettings):
    """Lost when the process ends: for trying things out."""

    type: Literal["memory"]
    """Selects this store."""


AnyStore = Annotated[
    SqliteStoreSettings | MongodbStoreSettings | MemoryStoreSettings,
    Field(discriminator="type"),
    default_kind("type", "sqlite"),
]
