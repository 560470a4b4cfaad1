"""Processes that are paused or cancelled in the middle of a transaction of a real database.

``ROUNDS`` sets the number of pauses.
"""

import os
import random
import signal
import time

from tests.daemon import Daemon, until
from tests.replicas import LEASE_SECONDS, assert_ends_well
from tests.shop import Shop

ROUNDS = int(os.environ.get("ROUNDS", "2"))

IN_A_THREAD = """

import random
import time

import anyio.to_thread
import psycopg


class InAThread(Orders):
    \"\"\"Its thread cannot be cancelled. A pause may come before or in its transaction.\"\"\"

    async def begin(self, scope: ScopeContext) -> str | None:
        return await anyio.to_thread.run_sync(self._begin, scope)

    def _begin(self, scope):
        with psycopg.connect(self._dsn) as connection:
            given = {"scope": scope.name, "epoch": scope.epoch}
            row = connection.execute(OWN, given).fetchone()
        if row is None:
            raise Fenced("a later process writes to this database")
        return row[0]

    async def write(self, batch: Batch) -> None:
        await anyio.to_thread.run_sync(self._write, batch)

    def _write(self, batch):
        given = {"scope": batch.scope.name, "epoch": batch.scope.epoch}
        given |= {"text": batch.position, "former": batch.former}
        with psycopg.connect(self._dsn) as connection:
            time.sleep(random.random() / 10)
            if connection.execute(MOVE, given).rowcount != 1:
                raise Fenced("another process has written since")
            time.sleep(random.random() / 10)
            rows = [(event.key_text, "{}") for event in batch]
            connection.cursor().executemany(UPSERT, rows)
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
        (run.directory / "mine.py").write_text(shop.source + IN_A_THREAD)
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
        run.signal()
        assert_ends_well(run)
        assert not run.logged("event.dead_lettered")


SLOW = """
    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        PERFORM pg_sleep(0.2); RETURN NEW;
    END $$;
    CREATE TRIGGER slow BEFORE UPDATE OF text ON position FOR EACH ROW EXECUTE FUNCTION wait();
"""


def test_a_cancelled_write_is_neither_lost_nor_repeated(shop: Shop) -> None:
    """A second signal cancels the call in the middle of its transaction."""
    shop.execute(SLOW)
    run = shop.daemon()
    shop.orders.insert(*range(100))
    run.configuration["scopes"][0]["snapshot"] = "initial"
    for _ in range(3):
        seen = len(shop.rows)
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
