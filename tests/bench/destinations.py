"""What an event costs the daemon with each destination, beside a plain client.

``python -m tests.bench.destinations [--quick] [--to NAME]``. The daemon reads replies of 1,000
events of 700 B from the scripted source, and writes batches of 1,000. The plain client
(``plain_clients``) gets the same BSON in memory, converts it itself and writes batches of the same
size to the same server, without a position, retries or order: once with PyMongo's ``json_util``,
which converts every type, and once with orjson, which only converts the types of these events. All
run in turns; the figures are medians of CPU time of the whole process, and each ratio is within one
run. The first client decides whether the daemon is quick enough: like the daemon, it converts every
type.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench import report
from tests.bench.contenders import Service
from tests.bench.processes import ROOT, Source, until_quiet
from tests.checkout import IMPORTS
from tests.daemon import until
from tests.destinations.destination import Make

DOCUMENT_BYTES = 455
"""An event of the source then has 700 B on average."""
REPLY_EVENTS = 1000
LEAST_RATIO = 0.7
"""The least speed of the daemon, as a share of the plain client's with ``json_util``."""

_WARM_REPLIES = 20
"""Handled before the measurement. While Kafka's broker is cold (it is a Java process), its clients
wait for it in many short turns, and cost twice as much."""
_PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Contest:
    """``to``: the type. ``most_us``: the most CPU microseconds of the daemon for an event.

    ``plain``: the name of the plain client. ``replies``: the replies of a run. ``handler`` extends
    the handler of the tests.
    """

    name: str
    label: str
    to: str
    plain: str
    most_us: float | None
    replies: int = 30
    handler: Mapping[str, Any] = field(default_factory=dict)
    log: bool = False


ONCE = {"exactly_once": True, "timeout_seconds": 30, "max_message_bytes": 1_000_000}
"""The last one is the default of Tailrace and of the client. librdkafka's requests are as large."""
AT_LEAST_ONCE = {**ONCE, "exactly_once": False}
ALL = (
    Contest("postgresql", "PostgreSQL, table, each once", "postgresql", "postgresql", 22),
    Contest("mongodb", "MongoDB, mirror, each once", "mongodb", "mongodb", None),
    Contest("kafka", "Kafka, native", "kafka", "kafka", 25, handler=AT_LEAST_ONCE),
    Contest("kafka-once", "Kafka, native, transactions", "kafka", "kafka-once", 28, handler=ONCE),
    Contest(
        "kafka-debezium",
        "Kafka, Debezium",
        "kafka",
        "kafka-debezium",
        35,
        handler={**AT_LEAST_ONCE, "envelope": "debezium"},
    ),
    Contest("nats", "NATS", "nats", "nats", 55),
    Contest("redis", "Redis, stream", "redis", "redis", 45, log=True),
    Contest("http", "HTTP, 1 event a request", "http", "http", 230, 10, {"batch_size": 1}),
    Contest("http-100", "HTTP, 100 a request", "http", "http-100", 22, 30, {"batch_size": 100}),
)


@dataclass(slots=True)
class Row:
    """CPU microseconds for an event, of each run."""

    contest: Contest
    daemon: list[float] = field(default_factory=list)
    plain: dict[str, list[float]] = field(default_factory=lambda: {"json_util": [], "orjson": []})

    def ratio(self, converter: str) -> float:
        """The daemon's speed as a share of the plain client's."""
        pairs = zip(self.daemon, self.plain[converter], strict=True)
        return median(plain / daemon for daemon, plain in pairs)

    @property
    def good(self) -> bool:
        most = self.contest.most_us
        enough = self.ratio("json_util") >= LEAST_RATIO
        return enough and (most is None or median(self.daemon) <= most)

    def cells(self) -> Sequence[str]:
        most = self.contest.most_us
        return (
            self.contest.label,
            f"{median(self.daemon):.1f} µs",
            "" if most is None else f"≤ {most:g} µs",
            *(f"{median(self.plain['json_util']):.1f} µs", f"{self.ratio('json_util'):.2f}"),
            f"≥ {LEAST_RATIO:g}",
            *(f"{median(self.plain['orjson']):.1f} µs", f"{self.ratio('orjson'):.2f}"),
            "yes" if self.good else "NO",
        )


def measure(contests: Sequence[Contest], runs: int) -> list[Row]:
    """Runs daemon and plain client in turns for each contest, with one server of each type."""
    rows = [Row(contest) for contest in contests]
    source = Source(DOCUMENT_BYTES, REPLY_EVENTS)
    try:
        for to in dict.fromkeys(contest.to for contest in contests):
            with import_module(f"tests.destinations.{to}").serve() as make:
                chosen = [row for row in rows if row.contest.to == to]
                first = chosen[0].contest
                _plain_us(make, first, "orjson", "warm", first.replies)  # the server is cold
                for number in range(runs):
                    for row in chosen:
                        replies = row.contest.replies
                        name = f"{row.contest.name.replace('-', '')}x{number}"
                        row.daemon.append(_daemon_us(source, make, row.contest, name, replies))
                        for converter, taken in row.plain.items():
                            mine = f"{name}{converter.replace('_', '')}"
                            taken.append(_plain_us(make, row.contest, converter, mine, replies))
    finally:
        source.close()
    return rows


def _handler(make: Make, contest: Contest, name: str) -> dict[str, Any]:
    made = make(name, log=contest.log)
    return {**made.handler, "batch_size": REPLY_EVENTS, **contest.handler}


def _daemon_us(source: Source, make: Make, contest: Contest, name: str, replies: int) -> float:
    """CPU microseconds of ``tailrace run`` for an event."""
    handler = _handler(make, contest, name)
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        client = Service(source.uri, Path(directory), handler)
        try:
            source.order("await 1")
            sent = source.serve(_WARM_REPLIES)
            _until_handled(client, sent)
            cpu = client.cpu_seconds
            events = source.serve(replies)
            _until_handled(client, events)
            used = client.cpu_seconds - cpu
        finally:
            client.kill()
        source.order("await 0")
    return used / (events - sent) * 1e6


def _until_handled(client: Service, events: int) -> None:
    """Waits until it has handled so many; it is asked seldom, because an answer costs it time."""

    def handled() -> bool:
        until_quiet(client, quiet_seconds=0.3)
        return client.handled() >= events

    until(handled, f"{events} events", _PATIENCE_SECONDS)


def _plain_us(make: Make, contest: Contest, converter: str, name: str, replies: int) -> float:
    """CPU microseconds of the plain client for an event."""
    handler = json.dumps(_handler(make, contest, name))
    command = [sys.executable, "-m", "tests.bench.plain_clients", contest.plain, converter]
    done = subprocess.run(
        [*command, handler, str(DOCUMENT_BYTES), str(_WARM_REPLIES), str(replies)],
        cwd=ROOT,
        env={"PYTHONPATH": IMPORTS, "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the plain client {contest.plain} ended: {done.stderr}")
    return float(done.stdout)


def main() -> int:
    """Measures and prints; returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.destinations")
    parser.add_argument("--quick", action="store_true", help="one run of each")
    parser.add_argument("--runs", type=int, default=3, help="of each, by turns")
    parser.add_argument("--to", action="append", help="only this type; may be repeated")
    options = parser.parse_args()
    chosen = [each for each in ALL if not options.to or each.to in options.to]
    print(report.machine())
    rows = measure(chosen, 1 if options.quick else options.runs)
    plain = ("plain client", "ratio", "wanted", "plain, orjson", "ratio")
    heads = ("", "daemon", "wanted", *plain, "reached")
    print(report.markdown(heads, [row.cells() for row in rows]))
    return 0 if all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
