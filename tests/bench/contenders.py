"""What is compared, and how to start each contender: in a fresh process and a fresh directory."""

import json
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench.namespace import NAMESPACE
from tests.bench.processes import QUIET_SECONDS, Client
from tests.machine import free_port

MOST_MB, MOST_MB_WITH_ARROW = 64, 200
"""The most resident memory of Tailrace: with any handler except `parquet`, and with `parquet`."""

_DATABASE, _, _COLLECTION = NAMESPACE.partition(".")


@dataclass(frozen=True, slots=True)
class Stream:
    """What is followed, and from when: a time in seconds, or ``None`` for now."""

    collection: str = _COLLECTION
    full_document: str | None = "updateLookup"
    start_seconds: int | None = None

    def scope(self) -> dict[str, Any]:
        """The stream as a scope of Tailrace."""
        name = self.collection
        scope = {"name": name, "database": _DATABASE, "collection": name}
        if self.full_document is not None:
            scope["full_document"] = self.full_document
        if self.start_seconds is not None:
            scope["start_at"] = datetime.fromtimestamp(self.start_seconds, UTC).isoformat()
        return scope


ORDERS = Stream()


@dataclass(frozen=True, slots=True)
class Contender:
    """One row of the table.

    ``replies``: the replies of 1,000 events of a run, some seconds each. ``bounds``: by the name of
    another row, how many times cheaper than that row this one must be. ``quiet_seconds``: after
    this time without work it has finished. ``most_mb``: the most memory that it may use. ``scope``
    and ``sections`` extend its scope and its configuration; ``handlers``: so many get every event.
    """

    name: str
    label: str
    replies: int
    client: str = ""
    handler: Mapping[str, Any] | str = ""
    bounds: Mapping[str, float] = field(default_factory=dict)
    quiet_seconds: float = QUIET_SECONDS
    most_mb: int = MOST_MB
    scope: Mapping[str, Any] = field(default_factory=dict)
    sections: Mapping[str, Any] = field(default_factory=dict)
    handlers: int = 1

    def start(
        self, uri: str, directory: Path, stream: Stream = ORDERS, **environment: str
    ) -> Client:
        """Starts its process; the cursor may not be open yet."""
        if self.client:
            arguments = ["-m", "tests.bench.clients", self.client, uri, str(self.handler)]
            return Client([*arguments, json.dumps(asdict(stream))], directory, **environment)
        assert not isinstance(self.handler, str)
        scopes = [{**stream.scope(), **self.scope}]
        return Service(
            uri,
            directory,
            self.handler,
            scopes=scopes,
            sections=self.sections,
            handlers=self.handlers,
            **environment,
        )


class Service(Client):
    """All of Tailrace, as ``tailrace run`` starts it: SQLite checkpoints, lanes, retries, HTTP."""

    def __init__(
        self,
        uri: str,
        directory: Path,
        handler: Mapping[str, Any],
        *,
        scopes: Sequence[Mapping[str, Any]] = (ORDERS.scope(),),
        sections: Mapping[str, Any] | None = None,
        handlers: int = 1,
        module: str = "tailrace",
        **environment: str,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._names = [f"it{number}" for number in range(handlers)]
        configuration: dict[str, Any] = {
            "mongodb": {"uri": uri},
            "store": {"path": "tailrace.db"},
            "http": {"port": self.port},
            "scopes": [dict(scope) for scope in scopes],
            "handlers": {name: dict(handler) for name in self._names},
            "routes": [{"scope": scope["name"], "handlers": self._names} for scope in scopes],
        }
        for section, keys in (sections or {}).items():
            merged = isinstance(keys, Mapping)
            configuration[section] = {**configuration.get(section, {}), **keys} if merged else keys
        path = directory / "config.yaml"
        path.write_text(json.dumps(configuration))
        arguments = ["-m", module, "run", "--config", str(path)]
        super().__init__(arguments, directory, **environment)

    def handled(self) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as reply:
            lines = reply.read().decode().splitlines()
        handled = sum(
            int(float(line.rpartition(" ")[2]))
            for line in lines
            if line.startswith("tailrace_events_handled_total{") and 'outcome="ok"' in line
        )
        return handled // len(self._names)


def _python(function: str) -> Mapping[str, Any]:
    return {"type": "python", "target": f"tests.bench.targets:{function}"}


MOTOR = Contender("motor", "Motor `watch()`, a handler that does nothing", 60, "motor", "ignore")
PYMONGO = Contender(
    "pymongo", "PyMongo asyncio `watch()`, a handler that does nothing", 400, "pymongo", "ignore"
)
EVENT = Contender(
    "event",
    "Tailrace, handler of one event that does nothing",
    600,
    handler=_python("ignore"),
    bounds={"motor": 8.0, "pymongo": 1.3},
)
DOCUMENT = Contender(
    "document",
    "Tailrace, handler of one event that reads `full_document`",
    500,
    handler=_python("read_document"),
    bounds={"pymongo": 0.8},
)
TWO_HANDLERS = Contender(
    "two-handlers",
    "Tailrace, two handlers of one event that do nothing",
    400,
    handler=_python("ignore"),
    bounds={"event": 1 / 1.6},
    handlers=2,
)
EVENTS = Contender(
    "events",
    "Tailrace, handler of a sequence that reads types and keys",
    600,
    handler=_python("read_each"),
    bounds={"motor": 9.0, "pymongo": 1 / 0.6},
)
RAW = Contender(
    "raw",
    "Tailrace, handler of a sequence that takes the bytes",
    3000,
    handler=_python("measure_each"),
    bounds={"motor": 40.0},
)
RELAXED = Contender(
    "jsonl",
    "Tailrace, `jsonl`, relaxed",
    200,
    handler={"type": "jsonl", "path": "events.jsonl"},
    bounds={"motor": 4.0},
)
CANONICAL = Contender(
    "jsonl-canonical",
    "Tailrace, `jsonl`, canonical",
    200,
    handler={"type": "jsonl", "path": "events.jsonl", "json": "canonical"},
)
PARQUET = Contender(
    "parquet",
    "Tailrace, `parquet`: segments of 16 MiB, synced",
    600,
    handler={"type": "parquet", "path": "lake", "segment_seconds": 0.5},
    bounds={"motor": 8.0, "jsonl": 1.5},
    quiet_seconds=0.75,  # by then, lingering rows are landed
    most_mb=MOST_MB_WITH_ARROW,
)

ALL = (MOTOR, PYMONGO, EVENT, DOCUMENT, TWO_HANDLERS, EVENTS, RAW, RELAXED, CANONICAL, PARQUET)
