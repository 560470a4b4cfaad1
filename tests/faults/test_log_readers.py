"""The reader of the log exits or stops reading: the daemon continues, and stops as usual."""

import json
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon import until
from tests.machine import free_port
from tests.orders import Orders

PRINTS = """
import sys

LINE = "x" * 3999 + "\\n"


async def handle(events):
    for event in events:
        sys.stdout.write(LINE)
        sys.stderr.write(LINE)
"""
"""Each change writes four kilobytes to each stream. Both are one pipe, which keeps lines apart only
if they are written at once and no longer than PIPE_BUF."""

MANY = 1500
"""Enough changes that their output exceeds the pipe and the queues."""


class Reader:
    """A daemon whose output goes to a pipe."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self.reads, writes = os.pipe()
        self.run = orders.daemon(
            source=PRINTS,
            http={"port": free_port()},
            logging={"level": "debug"},
            handlers={
                "file": {"type": "jsonl", "path": "events.jsonl"},
                "prints": {"type": "python", "target": "mine:handle"},
                "log": {"type": "log"},
            },
            routes=[{"scope": "orders", "handlers": ["file", "prints", "log"]}],
        )
        try:
            self.run.start(output=writes)
        finally:
            os.close(writes)

    def insert(self, first: int, behind: int) -> None:
        self._orders.insert(*range(first, behind))

    def until_saved(self, count: int) -> None:
        self.run.until_handled(file=count, prints=count, log=count)

    @property
    def dropped(self) -> float:
        return self.run.metric("tailrace_log_lines_dropped_total") or 0

    def close(self) -> None:
        if self.reads >= 0:
            os.close(self.reads)
        self.reads = -1

    def assert_saved(self, count: int) -> None:
        """The next process gets the next event, and no event again."""
        self.run.configuration["http"]["port"] = 0
        self.run.start()
        self.insert(count, count + 1)
        self.run.until_events(count + 1)
        assert sorted(self.run.ids()) == list(range(count + 1))
        assert self.run.stop() == 0, self.run.log


@pytest.fixture
def reader(orders: Orders) -> Iterator[Reader]:
    made = Reader(orders)
    yield made
    made.close()


def test_a_reader_of_the_log_that_is_gone_stops_nothing(reader: Reader) -> None:
    reader.close()
    reader.insert(0, 10)
    reader.until_saved(10)
    until(lambda: reader.dropped >= 30, "the count of lost lines")
    assert reader.run.get("/readyz")[0] == 200
    assert reader.run.stop() == 0
    reader.assert_saved(10)


def test_a_reader_of_the_log_that_stops_and_continues_is_told_what_is_lost(reader: Reader) -> None:
    """It gets the queued lines, in order, and lines that count the dropped ones."""
    reader.insert(0, MANY)
    reader.until_saved(MANY)
    until(lambda: reader.dropped, "the count of lost lines")
    assert reader.run.get("/readyz")[0] == 200
    entries: list[dict[str, Any]] = []

    def go_on() -> None:
        with os.fdopen(reader.reads, "rb", closefd=False) as file:
            entries.extend(json.loads(line) for line in file if line.startswith(b"{"))

    thread = threading.Thread(target=go_on)
    thread.start()

    def dropped() -> int:
        found = [entry for entry in entries if entry["event"] == "log.lines_dropped"]
        assert {entry["stream"] for entry in found} <= {"stdout", "stderr"}
        return sum(entry["lines"] for entry in found)

    until(lambda: dropped() == reader.dropped, "the lines about them", progress=dropped)
    assert reader.run.stop() == 0
    thread.join(60)
    assert entries[-1]["event"] == "service.stopped"


def test_a_stop_while_the_reader_of_the_log_has_stopped_is_clean(reader: Reader) -> None:
    reader.insert(0, MANY)
    reader.until_saved(MANY)
    assert reader.run.stop() == 0
    reader.assert_saved(MANY)
