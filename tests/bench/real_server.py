"""The same clients on MongoDB's mongod: what an event costs the client and the server.

One member, pinned to the core that the clients do not use. All events are in the oplog before a
client opens its stream, so there are no concurrent writes, and all clients read the same events.
The server holds every getMore until the client is idle, which excludes the cost of its start.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from bson import ObjectId
from pymongo.database import Database

from tests.bench import contenders, stock
from tests.bench.contenders import Contender, Stream
from tests.bench.processes import SOURCE_CPU, Client, Observed, until_quiet
from tests.daemon import until
from tests.mongod import ReplicaSet

DOCUMENT_BYTES = 320
EVENTS = 100_000

DATABASE = stock.NAMESPACE.partition(".")[0]
_HELD = "waitAfterPinningCursorBeforeGetMoreBatch"
_IDLE_SECONDS = 2.0
_PATIENCE_SECONDS = 300.0
_BULK = 10_000

Documents = Database[dict[str, Any]]

_SMALL_REPLIES = replace(
    contenders.EVENT,
    name="event-1000",
    label="Tailrace, the same, replies of 1,000",
    scope={"batch_size": 1000},
)
BASIC = (contenders.MOTOR, contenders.PYMONGO, contenders.EVENT)
ALL = (*BASIC, _SMALL_REPLIES, contenders.RAW)


@dataclass(frozen=True, slots=True)
class Workload:
    """What to write (a function of database and count), and how to read it."""

    name: str
    stream: Stream
    write: Callable[[Documents, int], int]


@dataclass(frozen=True, slots=True)
class Cost:
    """What client and server used for ``events`` events, without the server's idle load."""

    events: int
    seconds: float
    client_cpu_seconds: float
    server_cpu_seconds: float
    client_peak_mb: float


def _row(contender: Contender, costs: Sequence[Cost]) -> dict[str, Any]:
    """A row for JSON: the medians of the runs, and the runs."""
    return {
        "name": contender.name,
        "label": contender.label,
        "client_us": median(c.client_cpu_seconds / c.events * 1e6 for c in costs),
        "server_us": median(c.server_cpu_seconds / c.events * 1e6 for c in costs),
        "events_per_second": median(c.events / c.seconds for c in costs),
        "runs": [asdict(cost) for cost in costs],
    }


def measure(
    chosen: Sequence[Contender],
    runs: int,
    events: int,
    workloads: Sequence[Workload],
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Runs the contenders in turns on each workload; returns names and rows.

    Raises ``RuntimeError`` if a client has not handled exactly what was written, and
    :class:`tailrace.errors.ConfigurationError` if there is no mongod.
    """
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        server = ReplicaSet(Path(directory))
        try:
            bench = Bench(server)
            starts: dict[str, int] = {}
            for work in workloads:
                name = work.stream.collection
                if name not in starts:
                    with server.client() as client:
                        starts[name] = work.write(client[DATABASE], events)
                stream = replace(work.stream, start_seconds=starts[name])
                costs: dict[str, list[Cost]] = {each.name: [] for each in chosen}
                for _ in range(runs):
                    idle = bench.idle()
                    for each in chosen:
                        costs[each.name].append(bench.run(each, stream, events, idle))
                yield work.name, [_row(each, costs[each.name]) for each in chosen]
        finally:
            server.stop()


def pinned(server: ReplicaSet) -> Observed:
    """The server's process, pinned to the core that the clients do not use."""
    with server.client() as client:
        process = Observed(client.admin.command("serverStatus")["pid"])
    process.pin(SOURCE_CPU)
    return process


class Bench:
    """Runs clients on one server, which is pinned to a core of its own."""

    def __init__(self, server: ReplicaSet) -> None:
        self._server = server
        self._process = pinned(server)

    def idle(self) -> float:
        """The CPU seconds that an idle server uses in a second."""
        until_quiet(self._process)
        before = self._process.cpu_seconds
        time.sleep(_IDLE_SECONDS)
        return (self._process.cpu_seconds - before) / _IDLE_SECONDS

    def run(self, contender: Contender, stream: Stream, events: int, idle: float) -> Cost:
        """One run of a contender; ``idle`` is the result of :meth:`idle`."""
        with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory, ExitStack() as end:
            with self._reads_held():
                client = contender.start(self._server.uri, Path(directory), stream)
                end.callback(client.kill)
                until(self._is_read, "the first getMore", seconds=60)
                until_quiet(client)
                client_cpu, server_cpu = client.cpu_seconds, self._process.cpu_seconds
                began = time.perf_counter()
            seconds, client_end, server_end = self._end(client, events, began)
            handled, peak_mb = client.handled(), client.peak_mb
        if handled != events:
            raise RuntimeError(f"{contender.label}: handled {handled} of {events} events")
        used = server_end - server_cpu - idle * seconds
        return Cost(events, seconds, client_end - client_cpu, used, peak_mb)

    def _end(self, client: Client, events: int, began: float) -> tuple[float, float, float]:
        """Waits for the last event; returns the seconds, and CPU seconds of client and server."""
        while True:
            seconds = until_quiet(client, self._process) - began
            cpu = client.cpu_seconds, self._process.cpu_seconds
            # A server that is about to continue is quiet too.
            if client.handled() >= events or seconds > _PATIENCE_SECONDS:
                return seconds, *cpu

    @contextmanager
    def _reads_held(self) -> Iterator[None]:
        self._server.fail_point(_HELD, "alwaysOn")
        try:
            yield
        finally:
            self._server.fail_point(_HELD, "off")

    def _is_read(self) -> bool:
        reads: list[dict[str, Any]] = [
            {"$currentOp": {}},
            {"$match": {"command.getMore": {"$exists": True}}},
        ]
        with self._server.client() as client:
            return any(
                each["ns"].startswith(f"{DATABASE}.") for each in client.admin.aggregate(reads)
            )


def insert(database: Documents, name: str, events: int, size: int = DOCUMENT_BYTES) -> None:
    """Inserts ``count`` documents of this size."""
    for first in range(0, events, _BULK):
        database[name].insert_many(
            [
                stock.document(ObjectId(f"{number:024x}"), number, size)
                for number in range(first, min(first + _BULK, events))
            ]
        )


def next_second() -> int:
    """Waits for a second in which nothing has been written yet."""
    second = int(time.time()) + 1
    while time.time() < second:
        time.sleep(0.01)
    return second


def _inserts(database: Documents, events: int) -> int:
    database.create_collection("inserts")
    start = next_second()
    insert(database, "inserts", events)
    return start


def _updates(name: str, **options: Any) -> Callable[[Documents, int], int]:
    def write(database: Documents, events: int) -> int:
        database.create_collection(name, **options)
        insert(database, name, events)
        start = next_second()
        database[name].update_many({}, {"$set": {"status": "paid"}, "$inc": {"version": 1}})
        return start

    return write


WORKLOADS: Sequence[Workload] = (
    Workload("Inserts", Stream("inserts", None), _inserts),
    Workload("Updates, no documents", Stream("updates", None), _updates("updates")),
    Workload("Updates, `updateLookup`", Stream("updates", "updateLookup"), _updates("updates")),
    Workload(
        "Updates, stored post-images (`required`)",
        Stream("images", "required"),
        _updates("images", changeStreamPreAndPostImages={"enabled": True}),
    ),
)
