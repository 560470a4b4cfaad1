"""The collection ``orders`` of a test's database on a real server, and daemons that follow it."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from tests.daemon import Daemon, Make
from tests.load import Load, real_load
from tests.mongod import ReplicaSet

QUICK = "&heartbeatFrequencyMS=500&connectTimeoutMS=1000"
"""URI options with which a client notices faults soon."""


class Orders:
    """``uri`` is the URI for new daemons; other clients connect to the server itself."""

    def __init__(self, server: ReplicaSet, database: str, make: Make) -> None:
        self.server = server
        self.database = database
        self.uri = server.uri + QUICK
        self._make = make

    def daemon(
        self,
        directory: str = "run",
        *,
        driver: str = "motor",
        scope: dict[str, Any] | None = None,
        targets: dict[str, dict[str, Any]] | None = None,
        source: str = "",
        **sections: Any,
    ) -> Daemon:
        """Creates a daemon without starting it. Its module ``mine`` contains ``source``.

        All changes go to the Python handlers of these ``targets``, or else to a file.
        """
        if targets is not None:
            sections["handlers"] = {n: {"type": "python", **each} for n, each in targets.items()}
            sections["routes"] = [{"scope": "orders", "handlers": list(targets)}]
        run = self._make(
            self.uri,
            directory,
            **{
                "mongodb": {"uri": self.uri, "driver": driver},
                "scopes": [self.scope(**(scope or {}))],
                **sections,
            },
        )
        if source:
            (run.directory / "mine.py").write_text(source)
        return run

    def scope(self, **more: Any) -> dict[str, Any]:
        """The configuration of a scope ``orders``."""
        shown = {"name": "orders", "database": self.database, "collection": "orders"}
        return {**shown, "max_await_time_ms": 200, **more}

    def insert(self, *numbers: int, collection: str = "orders", **fields: Any) -> None:
        """Inserts documents whose ``_id`` are these numbers."""
        self.insert_each(({"_id": number, **fields} for number in numbers), collection)

    def insert_each(self, documents: Iterable[dict[str, Any]], collection: str = "orders") -> None:
        """Inserts documents with one call."""
        with self.server.client() as client:
            client[self.database][collection].insert_many(documents)

    def drop(self, collection: str = "orders") -> None:
        with self.server.client() as client:
            client[self.database][collection].drop()

    def load(self, every_seconds: float = 0.01) -> AbstractContextManager[Load]:
        """Inserts documents while its block runs."""
        return real_load(self.server, self.database, every_seconds)
