"""A daemon whose configuration is reloaded, and the handlers of its scopes."""

from typing import Any

from tests.actions import act
from tests.daemon import Daemon, until
from tests.orders import Orders

SOURCE = """
import os
import signal
from pathlib import Path

import anyio
from prometheus_client import Counter

def at(step):  # kills the process, once, if the test wants it
    if Path(f"die-{step}").exists():
        Path(f"die-{step}").unlink()
        os.kill(os.getpid(), signal.SIGKILL)


async def note(event, scope):
    Path(f"{scope}-begun").open("a").write(f"{event.document_key['_id']}\\n")
    try:
        while Path(f"{scope}-closed").exists():
            await anyio.sleep(0.02)
    except anyio.get_cancelled_exc_class():
        at("draining")
        raise
    with anyio.CancelScope(shield=True):  # ignores its cancellation
        while Path(f"{scope}-stuck").exists():
            await anyio.sleep(0.02)
    Path(scope).open("a").write(f"{event.document_key['_id']}\\n")


class Sink:
    def __init__(self, path: str, password: str = ""):
        self.path = path

    async def __aenter__(self):
        if "refused" in self.path:
            raise ValueError("no such bucket")
        if "hangs" in self.path:
            Path("opening").touch()
            await anyio.sleep_forever()
        if "second" in self.path:
            at("opening")
        Path("life").open("a").write(f"opened {self.path}\\n")

    async def __aexit__(self, *error):
        if "first" in self.path:
            at("closing")
        Path("life").open("a").write(f"closed {self.path}\\n")

    async def write(self, batch):
        if not hasattr(self, "written"):
            self.written = Counter("sink_written", "…", ["path"], registry=batch.scope.registry)
        self.written.labels(self.path).inc(len(batch))
        if any("bad" in event.full_document for event in batch):
            Path("tried").open("a").write("1\\n")
            raise ValueError("bad")
        if "second" in self.path:
            at("writing")
        lines = "".join(f"{event.document_key['_id']}\\n" for event in batch)
        Path(self.path).open("a").write(lines)
"""


class Reloaded:
    """A daemon with two scopes, ``orders`` and ``users``, both noted, and written to a sink."""

    def __init__(self, orders: Orders, **sections: Any) -> None:
        self.orders = orders
        self.run = orders.daemon(source=SOURCE, shutdown={"grace_seconds": 1}, **sections)
        self.config = self.run.configuration
        self.config["scopes"] = [self.scope("orders"), self.scope("users")]
        self.config["handlers"] = {
            "note": {"type": "python", "target": "mine:note"},
            "sink": self.sink("first"),
        }
        self.config["routes"] = [
            {"scope": "orders", "handlers": ["note"]},
            {"scope": "users", "handlers": ["note", "sink"]},
        ]

    def scope(self, name: str, **more: Any) -> dict[str, Any]:
        return self.orders.scope(name=name, collection=name, **more)

    def sink(self, path: str | dict[str, str]) -> dict[str, Any]:
        return {"type": "python", "target": "mine:Sink", "options": {"path": path}}

    def insert(self, number: int, *names: str, **fields: Any) -> None:
        for name in names:
            self.orders.insert(number, collection=name, **fields)

    def until(self, name: str, *numbers: int) -> None:
        """Waits until these were written, each once and in order."""
        until(lambda: len(self.run.numbers(name)) >= len(numbers), f"{numbers} in {name}")
        assert self.run.numbers(name) == [*numbers]

    def reload(self, **body: Any) -> tuple[int, Any]:
        """Writes the configuration, and reloads it; the status and the answer."""
        self.run.configured()
        return post(self.run, body)

    def life(self) -> list[str]:
        file = self.run.directory / "life"
        return file.read_text().splitlines()

    def runs(self, scope: str) -> int:
        """How many runs of a scope have begun."""
        return sum(entry["scope"] == scope for entry in self.run.logged("stream.starting"))


def post(run: Daemon, body: dict[str, Any]) -> tuple[int, Any]:
    return act(run, "/reload", sender="test", **body)
