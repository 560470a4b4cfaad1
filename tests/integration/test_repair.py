"""``tailrace verify --repair`` with a real server: exactly what differs comes again, between the
changes of the handler's stream."""

from pathlib import Path

import bson
import pytest

from tests.daemon import Daemon, until
from tests.integration.test_verify import is_done, is_followed, key, shown
from tests.machine import free_port
from tests.orders import Orders
from tests.verifying import TABLE, by_hand, verified
from tests.writers import Writers

# It notes what it gets of snapshots of keys.
NOTING = (
    TABLE
    + """

class Noting(Positioned):
    async def write(self, batch):
        await super().write(batch)
        with opened() as connection:
            sql = "CREATE TABLE IF NOT EXISTS noted (snapshot TEXT, operation TEXT, key BLOB)"
            connection.execute(sql)
            rows = [
                (event.id["snapshot"], event.operation_type, event.field_bytes("documentKey"))
                for event in batch
                if "snapshot" in event.id
            ]
            connection.executemany("INSERT INTO noted VALUES (?, ?, ?)", rows)


class Other:
    async def write(self, batch):
        with open("other.txt", "a") as file:
            file.writelines(f"{event.id}\\n" for event in batch)
"""
)


def noting(orders: Orders, *, driver: str) -> Daemon:
    """Beside another handler, which must not see the repair."""
    mine = {"target": "mine:Noting", "batch_size": 500}
    targets = {"mine": mine, "other": {"target": "mine:Other"}}
    return orders.daemon(
        driver=driver,
        scope={"full_document": "lookup", "snapshot": "initial"},
        targets=targets,
        source=NOTING,
        http={"port": free_port()},
    )


def noted(run: Daemon, snapshot: str) -> list[tuple[str, int]]:
    with by_hand(run) as rows:
        sql = "SELECT operation, key FROM noted WHERE snapshot = ?"
        found = rows.execute(sql, (snapshot,)).fetchall()
    return sorted((operation, bson.decode(raw)["_id"]) for operation, raw in found)


def repair_state(run: Daemon) -> str:
    return str((shown(run).get("repair") or {"state": ""})["state"])


@pytest.mark.parametrize("driver", ["motor", "pymongo"])
def test_exactly_what_differs_comes_again_in_parts_and_beside_changes(
    orders: Orders, driver: str
) -> None:
    orders.insert(*range(1200), n=0)
    run = noting(orders, driver=driver).start()
    until(lambda: is_done(run), "the snapshot")
    with by_hand(run) as rows:
        rows.execute("CREATE TABLE copied AS SELECT * FROM rows")
        rows.executemany("DELETE FROM rows WHERE key = ?", [(key(n),) for n in range(1000)])
        sql = "UPDATE rows SET n = '7' WHERE key = ?"
        rows.executemany(sql, [(key(n),) for n in range(1000, 1050)])
        sql = "INSERT INTO rows SELECT place, ?, document, n FROM copied WHERE key = ?"
        rows.executemany(sql, [(key(n), key(1)) for n in range(9000, 9050)])
        rows.execute(sql, (b"?", key(1)))
    told = run.refused("verify", "orders", "--handler", "mine", "--repair", "--dry-run")[1]
    assert "1,100 keys come again to mine; no document can have these keys" in told
    hot = range(1100, 1150)
    with (
        orders.server.client() as client,
        Writers(client, orders.database, ["orders"], hot, 1, pause=0.01, behind=run.is_behind),
    ):
        found = verified(run, "--handler", "mine", "--repair")
        assert [one["key"] for one in found["keys"]] == ["b'?'"]
        (repair,) = found["repairs"]
        expected = [("delete", n) for n in range(9000, 9050)]
        assert noted(run, repair["snapshot"]) == expected + [("read", n) for n in range(1050)]
        with by_hand(run) as rows:
            rows.execute("DELETE FROM rows WHERE key IN (?, ?)", (b"?", key(3)))
        with run.begun("verify", "orders", "--handler", "mine", "--repair") as command:
            until(lambda: repair_state(run) in ("waiting", "reading", "done"), "the repair")
            run.kill()
            command.wait(60)
        run.start()
        until(lambda: repair_state(run) == "done", "the repair, in another process")
        assert verified(run, "--handler", "mine", "--repair")["keys"] == []
    assert repair["snapshot"] not in Path(run.directory, "other.txt").read_text()
    assert run.stop() == 0


# It refuses the documents that it is told to, and raises for a row without a document.
PICKY = (
    TABLE
    + """

class Picky(Positioned):
    async def write(self, batch):
        refused = {
            at: "it is picky"
            for at, event in enumerate(batch)
            if (event.document_key or {}).get("_id") == 10 and "snapshot" not in event.id
        }
        if refused:
            raise Refused(refused)
        await super().write(batch)


class Halting(Table):
    async def write(self, batch):
        if any("snapshot" in event.id for event in batch):
            raise ValueError("no row is taken")
        await super().write(batch)
"""
)


def test_each_difference_says_why_and_a_repair_of_a_handler_that_halts_ends(orders: Orders) -> None:
    orders.insert(1, n=0)
    soon = {"attempts": 1}
    run = orders.daemon(
        scope={"full_document": "lookup"},
        targets={
            "mine": {"target": "mine:Picky", "on_failure": "dead_letter", "retry": soon},
            "halting": {"target": "mine:Halting", "on_failure": "halt", "retry": soon},
        },
        source=PICKY,
        http={"port": free_port()},
    ).start()
    until(lambda: is_followed(run), "the scope")
    orders.insert(9, 10, 11, n=0)
    (letter,) = until(run.letters, "the dead letter")
    run.command("dead-letters", "discard", letter["id"], "--scope", "orders")
    assert verified(run, "--key", "11", "--handler", "mine")["equal"] == 1
    with by_hand(run) as rows:
        rows.execute("DELETE FROM rows WHERE key IN (?, ?)", (key(10), key(11)))
        sql = "INSERT INTO rows SELECT place, ?, document, n FROM rows WHERE key = ?"
        rows.execute(sql, (key(99), key(9)))
    found = verified(run, "--handler", "mine")
    why = {one["key"]: one["why"] for one in found["keys"]}
    number = '{"$numberInt":"%d"}'
    for at, words in (
        (1, "its last change, insert at"),
        (10, f"dead letter {letter['id']} was discarded at"),
        (11, "its last change, insert at"),
        (99, "no change of it since the handler began at"),
    ):
        assert why[number % at].startswith(words), why
    assert "is before start: changes are delivered to it from" in why[number % 1]
    with run.begun("verify", "orders", "--status") as command:
        assert f"; dead letter {letter['id']} was discarded" in command.communicate(60)[0]
    run.command("scopes", "pause", "orders", "--handler", "mine")
    code, errors = run.refused("verify", "orders", "--handler", "mine", "--repair")
    assert (code, "is paused: resume it first" in errors) == (2, True), errors
    run.command("scopes", "resume", "orders", "--handler", "mine")
    code, errors = run.refused("verify", "orders", "--handler", "halting", "--repair")
    assert (code, "is halted: " in errors) == (2, True), errors
    assert verified(run, "--handler", "mine", "--repair")["keys"] == []
    assert run.stop() == 0
