"""Handlers that block the event loop for a moment at each call, in many scopes at once."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.daemon import Daemon, until
from tests.orders import Orders
from tests.replicas import Replicas

SCOPES = tuple(f"orders{number}" for number in range(8))
LEASE_SECONDS = 5
INTERVAL_SECONDS = 0.5

SOURCE = """
import asyncio
import os
import time

SHARED, SECONDS = os.environ["SHARED"], float(os.environ["SECONDS"])


def note(event, scope, epoch):
    time.sleep(SECONDS)
    with open(SHARED, "a") as file:
        file.write(f"{scope} {epoch} {os.environ['NAME']} {event.document_key['_id']}\\n")


async def at_once(event, scope, epoch):
    note(event, scope, epoch)


async def after_an_await(event, scope, epoch):
    await asyncio.sleep(0.001)
    note(event, scope, epoch)
"""


class Blocking(Replicas):
    """Daemons whose handler blocks the loop for ``seconds`` a call."""

    source = SOURCE

    def __init__(self, orders: Orders, target: str, seconds: float, driver: str) -> None:
        super().__init__(orders, lease=LEASE_SECONDS)
        self._target, self._seconds, self._driver = target, seconds, driver

    def daemon(self, name: str, uri: str = "", **sections: Any) -> Daemon:
        run = super().daemon(name, uri, **sections)
        run.configuration.update(self.following(*SCOPES))
        run.configuration["handlers"]["note"]["target"] = f"mine:{self._target}"
        run.configuration["mongodb"]["driver"] = self._driver
        run.configuration["checkpoint"]["interval_seconds"] = INTERVAL_SECONDS
        run.environ["SECONDS"] = str(self._seconds)
        return run

    def insert(self, changes: int) -> None:
        with self.orders.server.client() as client:
            for scope in SCOPES:
                documents = [{"_id": number} for number in range(changes)]
                client[self.orders.database][scope].insert_many(documents)

    def until_handled(self, changes: int, seconds: float) -> None:
        until(lambda: len(self.noted) >= changes * len(SCOPES), "all changes", seconds)


class Observed:
    """How long answers and saves took while a block ran."""

    def __init__(self, replicas: Blocking) -> None:
        self._replicas = replicas
        self._over = threading.Event()
        self.refused: list[Any] = []
        self.slowest = 0.0
        self.pauses: dict[str, float] = defaultdict(float)
        """By scope, the longest time between two saves."""

    @contextmanager
    def observing(self) -> Iterator[None]:
        threads = [threading.Thread(target=each) for each in (self._ask, self._look)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _ask(self) -> None:
        while not self._over.wait(0.1):
            for run in self._replicas.runs.values():
                for path in ("/livez", "/readyz", "/metrics"):
                    began = time.monotonic()
                    answer = run.get(path)
                    if answer[0] != 200:
                        self.refused.append((path, *answer))
                    self.slowest = max(self.slowest, time.monotonic() - began)

    def _look(self) -> None:
        last: dict[str, tuple[Any, float]] = {}
        with self._replicas.orders.server.client() as client:
            while not self._over.wait(0.1):
                for found in client[self._replicas.store["database"]]["checkpoints"].find():
                    scope, saved, now = found["_id"], found["saved_at"], time.monotonic()
                    before, since = last.get(scope, (None, now))
                    if saved != before:
                        last[scope] = saved, now
                    self.pauses[scope] = max(self.pauses[scope], now - since)


@pytest.mark.parametrize(
    ("target", "seconds", "changes", "driver"),
    [("at_once", 0.003, 400, "motor"), ("after_an_await", 0.01, 150, "pymongo")],
)
def test_handlers_that_block_the_loop_briefly_lose_no_lease(
    orders: Orders, target: str, seconds: float, changes: int, driver: str
) -> None:
    replicas = Blocking(orders, target, seconds, driver)
    (run,) = replicas.start("one")
    for scope in SCOPES:
        replicas.until_owner(scope=scope)
    observed = Observed(replicas)
    with observed.observing():
        replicas.insert(changes)
        replicas.until_handled(changes, 60 + 4 * seconds * changes * len(SCOPES))
    assert not run.logged("lease.lost")
    assert not observed.refused
    assert len(replicas.noted) == changes * len(SCOPES), "each change once"
    assert max(observed.pauses.values()) < 6 * INTERVAL_SECONDS + 1
    assert observed.slowest < 2
    replicas.stop()
