"""Events that handlers cannot handle: retried, dead-lettered in order, replayed, discarded."""

import json
import sqlite3
from contextlib import closing
from functools import partial
from typing import Any

from tests.actions import act
from tests.daemon import Daemon, until
from tests.machine import free_port
from tests.orders import Orders

# Refuses the events that the file "poison" names, and records the others.
PICKY = """
from pathlib import Path

async def handle(event):
    if event.operation_type.startswith("snapshot"):
        return
    poison = Path("poison").read_text().split() if Path("poison").exists() else []
    if str(event.full_document["n"]) in poison:
        raise ValueError(f"poison {event.full_document['n']}")
    with open("handled", "a") as file:
        print(event.full_document["n"], file=file)
"""

REFUSE_LETTERS = """
CREATE TRIGGER refuse_letters BEFORE INSERT ON dead_letters
BEGIN SELECT RAISE(ABORT, 'no letters today'); END
"""


class Picky:
    """A daemon whose handler ``mine`` refuses the numbers in the file "poison"."""

    def __init__(
        self, orders: Orders, poison: str, snapshot: str = "never", **delivery: Any
    ) -> None:
        self._orders = orders
        retry = {"attempts": 2, "first_seconds": 0.01, "cap_seconds": 0.02}
        self.run = orders.daemon(
            scope={"snapshot": snapshot},
            targets={"mine": {"target": "mine:handle"}},
            source=PICKY,
            delivery={"retry": retry, **delivery},
            http={"port": free_port()},
        )
        self.poison(poison)

    def poison(self, numbers: str = "") -> None:
        (self.run.directory / "poison").write_text(numbers)

    def write(self, n: int, key: Any = None) -> None:
        """Sets ``n`` in the document ``key`` (by default the document ``n``)."""
        with self._orders.server.client() as client:
            orders = client[self._orders.database].orders
            orders.replace_one({"_id": n if key is None else key}, {"n": n}, upsert=True)

    def handled(self) -> list[int]:
        return self.run.numbers("handled")

    def until_letters(self, count: int) -> None:
        total = ("tailrace_dead_letters_total", {"handler": "mine"})
        until(lambda: self.run.metric(total[0], **total[1]) == count, f"{count} letters")


def test_a_poison_event_and_later_ones_of_its_document_wait_and_are_replayed_in_order(
    orders: Orders,
) -> None:
    """Until the document's letters are replayed or discarded. Other documents are delivered."""
    picky = Picky(orders, "1")
    run = picky.run.start()
    for n, key in ((1, "a"), (2, "b"), (3, "a"), (4, "b")):
        picky.write(n, key)
    picky.until_letters(2)
    until(lambda: picky.handled() == [2, 4], "the other document")
    assert run.metric("tailrace_handler_retries_total", handler="mine") == 1
    assert run.metric("tailrace_events_handled_total", outcome="dead_letter") == 2
    assert run.stop() == 0
    assert "poison 1" in run.command("dead-letters", "list")
    run.start()
    picky.write(5, "a")
    picky.until_letters(1)
    assert run.refused("dead-letters", "replay")[0] == 1
    assert picky.handled() == [2, 4]
    picky.poison()
    assert "would be replayed" in run.command("dead-letters", "replay", "--dry-run")
    result = json.loads(run.command("dead-letters", "replay", "--json"))
    assert [result[each] for each in ("done", "failed")] == [3, 0]
    assert len(result["letters"]) == 3
    assert picky.handled() == [2, 4, 1, 3, 5]
    picky.write(6, "a")
    until(lambda: picky.handled()[-1] == 6, "the document is free again")
    picky.poison("7")
    picky.write(7, "a")
    picky.until_letters(2)
    trial = run.command("dead-letters", "discard", "--handler", "mine", "--dry-run")
    assert trial == "1 dead letter would be discarded. Dry run: nothing was changed\n"
    result = run.command("dead-letters", "discard", "--handler", "mine")
    assert result.splitlines()[-1] == "Discarded 1 dead letter."
    picky.write(8, "a")
    until(lambda: picky.handled()[-1] == 8, "the document is free again")
    assert run.stop() == 0
    assert "No dead letters" in run.command("dead-letters", "list")


def test_rows_of_a_snapshot_are_replayed_before_later_events(orders: Orders) -> None:
    picky = Picky(orders, "1 3", snapshot="initial")
    orders.insert_each({"_id": n, "n": n} for n in range(5))
    run = picky.run.start()
    picky.until_letters(2)
    picky.write(10, key=3)
    picky.write(11, key=4)
    picky.until_letters(3)
    until(lambda: picky.handled()[-1] == 11, "another document")
    assert sorted(picky.handled()) == [0, 2, 4, 11]
    picky.poison()
    run.command("dead-letters", "replay")
    assert sorted(picky.handled()[4:]) == [1, 3, 10]
    assert picky.handled().index(3) < picky.handled().index(10)
    picky.write(12, key=3)
    until(lambda: picky.handled()[-1] == 12, "the document is free again")
    assert sorted(picky.handled()) == [0, 1, 2, 3, 4, 10, 11, 12]


def test_on_failure_halt_stops_at_the_event(orders: Orders) -> None:
    picky = Picky(orders, "1", on_failure="halt")
    run = picky.run.start()
    for n in range(3):
        picky.write(n, "same")
    run.halts()
    assert "on_failure: halt" in run.logged("scope.halted")[0]["error"]
    picky.poison()
    run.start()
    until(lambda: picky.handled()[-1:] == [2], "the rest")
    assert run.stop() == 0
    assert list(dict.fromkeys(picky.handled())) == [0, 1, 2]


def test_a_bad_deploy_halts_at_max_consecutive_dead_letters(orders: Orders) -> None:
    numbers = range(100)
    picky = Picky(orders, " ".join(map(str, numbers)), dead_letters={"max_consecutive": 5})
    run = picky.run.start()
    orders.insert_each({"_id": n, "n": n} for n in numbers)
    run.halts()
    assert "5 events in a row became dead letters" in run.logged("scope.halted")[0]["error"]
    assert len(run.command("dead-letters", "export").splitlines()) <= 5


def test_letters_that_cannot_be_stored_are_not_lost(orders: Orders) -> None:
    picky = Picky(orders, "1")
    run = picky.run.start()
    with closing(sqlite3.connect(run.directory / "tailrace.db", timeout=60)) as store:
        store.execute(REFUSE_LETTERS)
        picky.write(1)
        restarts = partial(run.logged, "watcher.restarting")
        until(lambda: any("no letters today" in one["error"] for one in restarts()), "a restart")
        store.execute("DROP TRIGGER refuse_letters")
    until(lambda: "poison 1" in run.command("dead-letters", "list"), "the letter")
    assert run.stop() == 0


def test_letters_that_wait_are_counted_in_the_store(orders: Orders) -> None:
    """Also after a restart; the count falls when the command line resolves letters."""
    picky = Picky(orders, "1 2 3")
    run = picky.run.start()

    def until_waiting(count: int) -> None:
        until(lambda: waiting(run) == (count, count), f"{count} letters that wait")

    until_waiting(0)
    orders.insert_each({"_id": n, "n": n} for n in range(4))
    picky.until_letters(3)
    assert run.stop() == 0
    run.start()
    until_waiting(3)
    assert run.metric("tailrace_dead_letters_total", handler="mine") == 0
    code, answer = run.get("/readyz")
    (reason,) = json.loads(run.get("/status")[1])["degraded"]
    assert (code, answer) == (200, f"degraded\n{reason}\n")
    assert reason.startswith("scope orders: 3 dead letters wait for handler 'mine'")
    listed = run.command("dead-letters", "list").splitlines()
    (one, *_) = (line.split()[0] for line in listed if "poison" in line)
    result = json.loads(run.command("dead-letters", "discard", one, "--json"))
    assert (result["done"], result["letters"][0]["outcome"]) == (1, "discarded")
    until_waiting(2)
    picky.poison()
    result = json.loads(run.command("dead-letters", "replay", "--json"))
    assert (result["done"], result["failed"], len(result["letters"])) == (2, 0, 2)
    until_waiting(0)
    assert run.get("/readyz") == (200, "ok\n")
    assert run.stop() == 0


def waiting(run: Daemon) -> tuple[float | None, Any]:
    metric = run.metric("tailrace_dead_letters_waiting", scope="orders", handler="mine")
    return metric, run.status()["handlers"]["mine"]["waiting"]


# Stores its position with its data, and refuses the documents that the file "poison" names.
OWNER = """
import json
from pathlib import Path


class Table:
    async def begin(self, scope):
        self.data = {"position": None, "rows": {}}
        if Path("table").exists():
            self.data = json.loads(Path("table").read_text())
        return self.data["position"]

    async def write(self, batch):
        poison = Path("poison").read_text().split()
        for event in batch:
            number = str(event.document_key["_id"])
            if event.operation_type == "delete":
                self.data["rows"].pop(number, None)
            elif number in poison:
                raise ValueError(f"poison {number}")
            else:
                self.data["rows"][number] = event.full_document["n"]
        self.data["position"] = batch.position
        Path("new").write_text(json.dumps(self.data))
        Path("new").rename("table")
"""


def test_letters_of_a_handler_with_a_position_are_replayed_as_a_snapshot_of_their_documents(
    orders: Orders,
) -> None:
    run = orders.daemon(
        targets={"table": {"target": "mine:Table", "on_failure": "dead_letter"}},
        source=OWNER,
        delivery={"retry": {"attempts": 1}},
    )
    (run.directory / "poison").write_text("1 2 3")
    run.start()
    orders.insert_each({"_id": n, "n": n} for n in range(5))
    with orders.server.client() as client:
        collection = client[orders.database].orders
        collection.update_one({"_id": 1}, {"$set": {"n": 10}})
        collection.delete_one({"_id": 3})
    until(lambda: len(run.letters()) == 5, "the letters")
    (run.directory / "poison").write_text("")
    _, dry = act(run, "/dead-letters/replay", dry_run=True)
    assert "5 dead letters of handler 'table' of scope 'orders' would be disc" in dry["message"]
    status, result = act(run, "/dead-letters/replay")
    assert status == 202
    outcomes = [each["outcome"] for each in result["letters"]]
    assert outcomes.count("discarded for a snapshot of its document") == 3
    assert sum("its document was deleted" in each for each in outcomes) == 1

    def rows() -> Any:
        return json.loads((run.directory / "table").read_text())["rows"]

    until(lambda: rows() == {"0": 0, "1": 10, "2": 2, "4": 4}, "the rows of the snapshot")
    assert [each["event"]["documentKey"] for each in run.letters()] == [{"_id": 3}] * 2
    orders.insert_each([{"_id": 5, "n": 5}])
    until(lambda: rows().get("5") == 5, "the next change")
    assert run.stop() == 0, run.log
