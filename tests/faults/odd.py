"""A service whose handler is one of :mod:`tests.faults.odd_handlers`."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.daemon import Daemon, until
from tests.mongod import ReplicaSet


class Odd:
    """The service, and what its handlers have noted. They are closed to begin with."""

    def __init__(
        self, make: Callable[..., Daemon], server: ReplicaSet, *targets: str, **sections: Any
    ) -> None:
        self._server = server
        self._database = f"odd{uuid.uuid4().hex}"
        options = sections.pop("handler", {})
        scope = {"name": "orders", "database": self._database, "collection": "orders"}
        self.run = make(
            server.uri,
            scopes=[{**scope, "max_await_time_ms": 200}],
            handlers={
                target: {"type": "python", "target": f"odd_handlers:{target}", **options}
                for target in targets
            },
            routes=[{"scope": "orders", "handlers": list(targets)}],
            **sections,
        )
        source = Path(__file__).with_name("odd_handlers.py")
        (self.run.directory / source.name).write_bytes(source.read_bytes())
        self.close()

    def close(self) -> None:
        (self.run.directory / "closed").touch()

    def open(self) -> None:
        (self.run.directory / "closed").unlink()

    def insert(self, *numbers: int) -> None:
        with self._server.client() as client:
            orders = client[self._database].orders
            orders.insert_many([{"_id": number} for number in numbers])

    def update(self, number: int, fields: dict[str, Any]) -> None:
        with self._server.client() as client:
            client[self._database].orders.update_one({"_id": number}, {"$set": fields})

    def noted(self, where: str) -> list[int]:
        path = self.run.directory / where
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def until_noted(self, where: str, *numbers: int) -> None:
        until(lambda: set(numbers) <= set(self.noted(where)), f"{numbers} in {where}")

    def until_saved(self) -> None:
        """Nothing is in flight any more, and the checkpoint says so."""
        until(
            lambda: (
                (status := self.run.status())["in_flight"]["events"] == 0
                and status["checkpoint"]
                and status["checkpoint"]["token"] == status["position"]["token"]
            ),
            "the checkpoint",
        )

    def ends_well(self) -> None:
        assert self.run.stop() == 0, self.run.log
        assert "Traceback" not in self.run.log
