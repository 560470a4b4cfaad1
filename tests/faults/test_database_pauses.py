"""Processes that are paused or cancelled in the middle of a transaction of a real database.

``ROUNDS`` sets the number of pauses.
"""

import os
import random
import signal
import time

from tests.daemon import Daemon, until
from tests.shop import SOURCE, Shop

ROUNDS = int(os.environ.get("ROUNDS", "2"))
LEASE_SECONDS = 2.0

IN_A_THREAD = """

import random
import time

import anyio.to_thread


class InAThread(Orders):
    \"\"\"Its thread cannot be cancelled. A pause may come before or in its transaction.\"\"\"

    async def begin(self, scope: ScopeContext) -> str | None:
        return await anyio.to_thread.run_sync(self._begin, scope)

    def _begin(self, scope):
        with psycopg.connect(self._dsn) as connection:
            row = connection.execute(OWN, (scope.name, scope.epoch)).fetchone()
        if row is None:
            raise Fenced("a later process writes to this database")
        return row[0]

    async def write(self, batch: Batch) -> None:
        await anyio.to_thread.run_sync(self._write, batch)

    def _write(self, batch):
        scope = batch.scope
        with psycopg.connect(self._dsn) as connection:
            time.sleep(random.random() / 10)
            given = batch.position, scope.name, scope.epoch, batch.former
            if connection.execute(MOVE, given).rowcount != 1:
                raise Fenced("another process has written since")
            time.sleep(random.random() / 10)
            rows = [(event.document_key["_id"], event.operation_type) for event in batch]
            connection.cursor().executemany(self._insert, rows)
"""


def test_a_pause_of_three_leases_in_mid_transaction_writes_nothing_twice(shop: Shop) -> None:
    store = {"type": "mongodb", "database": f"{shop.orders.database}_store"}

    def start(name: str) -> Daemon:
        run = shop.daemon(
            name,
            handler={"target": "mine:InAThread"},
            store=store,
            replicas={"lease_seconds": LEASE_SECONDS, "name": name},
        )
        (run.directory / "mine.py").write_text(SOURCE + IN_A_THREAD)
        return run.start(ready=False).until_answers()

    one = start("one")
    until(lambda: one.status().get("state") == "caught_up", "the start of the stream")
    runs = [one, start("two")]

    def owner() -> Daemon | None:
        return next((run for run in runs if run.metric("tailrace_lease_held") == 1), None)

    with shop.orders.load(0.02) as load:
        for _ in range(ROUNDS):
            paused = until(owner, "an owner")
            seen = len(shop.rows)
            until(lambda seen=seen: len(shop.rows) > seen, "that it writes")  # type: ignore[misc]
            time.sleep(random.random() / 5)  # anywhere in a call
            paused.signal(signal.SIGSTOP)
            time.sleep(3 * LEASE_SECONDS)
            paused.signal(signal.SIGCONT)
    shop.until_rows(load.written)
    assert shop.rows == list(range(load.written))
    for run in runs:
        assert run.stop() == 0, run.log
        assert not run.logged("event.dead_lettered")
        assert "Traceback" not in run.log


def test_a_cancelled_write_is_neither_lost_nor_repeated(shop: Shop) -> None:
    """A second signal cancels the call in the middle of its transaction."""
    run = shop.daemon(options={"seconds": 0.2})
    shop.orders.insert(*range(100))
    run.configuration["scopes"][0]["snapshot"] = "initial"
    for _ in range(3):
        seen = len(shop.rows) if run.process else 0
        run.start()
        shop.until_rows(seen + 1)
        run.signal()
        run.signal()
        assert run.wait() in (0, 3), run.log
        assert "Traceback" not in run.log
    run.start()
    shop.until_rows(100)
    assert sorted(shop.rows) == list(range(100))
    assert run.stop() == 0, run.log
