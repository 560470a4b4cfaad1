"""The settings of the store, which keeps checkpoints, gaps, dead letters and leases."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tailrace.config.fields import DatabaseName, Section, Text, empty_is_none


class SqliteStoreSettings(Section):
    """A local SQLite file: the default, because it needs no other service."""

    type: Literal["sqlite"] = "sqlite"
    """Selects this store."""

    path: Text = "data/tailrace.db"
    """The file. It must outlive the process: put it on a volume if you use containers."""


class MongodbStoreSettings(Section):
    """A database on the server that is followed, for processes without a disk of their own."""

    type: Literal["mongodb"]
    """Selects this store."""

    database: DatabaseName = "tailrace"
    """The database for the collections `checkpoints`, `dead_letters`, `leases`,
    `desired_states` and `verifications`, which are created if missing. No scope may follow it, or
    each save would be a change."""


class MemoryStoreSettings(Section):
    """Kept in memory and lost when the process ends: for trying things out."""

    type: Literal["memory"]
    """Selects this store."""


def local_token_file(store: "AnyStore") -> Path:
    """Where the service stores a token of its own (:mod:`tailrace.observe.local_token`).

    Beside a store on this machine's disk; otherwise where the default store would be.
    """
    beside = store if isinstance(store, SqliteStoreSettings) else SqliteStoreSettings()
    return Path(beside.path).with_suffix(".token")


def _sqlite_by_default(value: Any) -> Any:
    absent = isinstance(value, dict) and empty_is_none(value.get("type")) is None
    return {**value, "type": "sqlite"} if absent else value


AnyStore = Annotated[
    SqliteStoreSettings | MongodbStoreSettings | MemoryStoreSettings,
    Field(discriminator="type"),
    BeforeValidator(_sqlite_by_default),
]
