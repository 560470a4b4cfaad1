"""The cost of an event with more scopes, lanes or events: ``python -m tests.bench.scaling``.

Here the handler itself records what the process used from its first event to its last, because a
process with a hundred scopes is never idle.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.__main__ import STANDARD
from tests.bench.contenders import Service, Stream
from tests.bench.processes import Source, Span
from tests.bench.report import markdown

_PATIENCE_SECONDS = 600.0
_REST_SECONDS = 2.0
_COLLECTION = "orders"


@contextmanager
def service(
    source: Source, scopes: int, target: str, sections: Mapping[str, Any], **environment: str
) -> Iterator[Service]:
    """Tailrace with this many scopes, each on its own collection, once all streams are open."""
    names = [_COLLECTION, *(f"idle{number}" for number in range(1, scopes))]
    handler = {"type": "python", "target": f"tests.bench.targets:{target}"}
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        running = Service(
            source.uri,
            Path(directory),
            handler,
            scopes=[Stream(name).scope() for name in names],
            sections=sections,
            **environment,
        )
        try:
            source.order(f"await {scopes}")
            yield running
        finally:
            running.kill()
        source.order("await 0")


def used(
    source: Source,
    replies: int,
    *,
    scopes: int = 1,
    busy: int = 1,
    target: str = "count",
    **sections: Any,
) -> Span:
    """Serves ``replies`` replies to ``busy`` (one or all) of the scopes.

    The idle cost of the scopes is measured before and subtracted from the cost of the events.
    """
    events = int(replies * source.reply_events) * busy
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        meter = Path(directory) / "meter"
        noted = {"BENCH_METER": str(meter), "BENCH_EVENTS": str(events)}
        with service(source, scopes, target, sections, **noted) as running:
            time.sleep(_REST_SECONDS / 2)
            before = running.cpu_seconds
            time.sleep(_REST_SECONDS)
            rest = (running.cpu_seconds - before) / _REST_SECONDS
            source.order(f"serve {replies} {_COLLECTION if busy == 1 else ''}")
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while not meter.exists():
                time.sleep(0.2)
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{events} events were not handled in time")
            seconds, cpu = map(float, meter.read_text().split())
    return Span(events, seconds, cpu - rest * seconds)


def print_costs(title: str, runs: int, cases: Mapping[str, Callable[[], Span]]) -> None:
    """Runs all cases in turns; prints a line of medians for each."""
    found: dict[str, list[Span]] = {name: [] for name in cases}
    for _ in range(runs):
        for name, case in cases.items():
            found[name].append(case())
    rows = []
    for name, spans in found.items():
        cost = median(span.cpu_per_million for span in spans)
        rows.append((name, f"{cost:.2f}", f"{median(s.events_per_second for s in spans):,.0f}"))
    table = markdown(["", "CPU s per million", "events/s"], rows)
    print(f"\n## {title}\n\n{table}", flush=True)


def scopes(source: Source, runs: int, replies: int) -> None:
    """From 1 to 100 scopes, with events for one or for all of them."""
    cases = {"1 scope": partial(used, source, replies)}
    for count in (10, 100):
        each = max(replies // count, 1)
        cases[f"{count} scopes, 1 busy"] = partial(used, source, replies, scopes=count)
        cases[f"{count} scopes, all busy"] = partial(used, source, each, scopes=count, busy=count)
    print_costs("Scopes", runs, cases)


def events(source: Source, runs: int, most: int) -> None:
    """From 10⁵ events up."""
    counts = [count for count in (100_000, 1_000_000, 10_000_000) if count <= most]
    cases = {f"{count:,} events": partial(used, source, count // 1000) for count in counts}
    print_costs("Events", runs, cases)


def lanes(source: Source, runs: int, replies: int) -> None:
    """With a handler that does nothing, and with a handler that waits."""
    cases = {
        f"{count} lanes": partial(used, source, replies, delivery={"lanes": count})
        for count in (1, 8, 64)
    }
    print_costs("Lanes, a handler that does nothing", runs, cases)
    cases = {
        f"{count} lanes": partial(
            used, source, max(count // 4, 1), target="count_1_ms", delivery={"lanes": count}
        )
        for count in (1, 8, 64, 256)
    }
    print_costs("Lanes, a handler that waits a millisecond", runs, cases)


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scaling")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--replies", type=int, default=500, help="of 1,000 events, a run")
    parser.add_argument("--events", type=int, default=10_000_000, help="the longest run")
    options = parser.parse_args()
    source = Source(*STANDARD)
    try:
        scopes(source, options.runs, options.replies)
        lanes(source, options.runs, options.replies)
        events(source, options.runs, options.events)
    finally:
        source.close()


if __name__ == "__main__":
    main()
