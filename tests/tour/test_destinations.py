"""Seven promises to those who write a destination, one test each. Read them after the first ten.

As in ``test_promises.py``, the service is a process and the server is a real one. Each handler here
is written as a user would write it, beside the configuration that names it.
"""

import signal
import sqlite3
import subprocess
import sys
from typing import Any

from bson import json_util
from deltalake import DeltaTable
from pymongo.collection import Collection

from tests.daemon import Daemon, until
from tests.machine import free_port
from tests.orders import Orders
from tests.pipeline.conftest import SETTINGS

Shop = Collection[dict[str, Any]]


def write_to(run: Daemon, source: str, **handler: Any) -> None:
    """Lets all changes go to the handler ``mine``, whose module ``shop`` has this source."""
    (run.directory / "shop.py").write_text(source)
    run.configuration["handlers"] = {"mine": {"type": "python", **handler}}
    run.configuration["routes"] = [{"scope": "orders", "handlers": ["mine"]}]


BATCHES = """
async def on_orders(events):
    with open("batches", "a") as file:
        print(*[event.document_key["_id"] for event in events], file=file)
"""


def test_11_a_batch_handler_gets_consecutive_changes_in_the_order_of_the_stream(
    shop: Shop, tailrace: Daemon
) -> None:
    """One call at a time, never more than ``batch_size`` events; nothing is left over."""
    write_to(tailrace, BATCHES, target="shop:on_orders", batch_size=40)
    tailrace.start()
    shop.insert_many([{"_id": number} for number in range(100)])
    path = tailrace.directory / "batches"
    until(lambda: path.exists() and len(path.read_text().split()) == 100, "every change")
    batches = [[int(each) for each in line.split()] for line in path.read_text().splitlines()]
    assert [each for batch in batches for each in batch] == list(range(100))
    assert max(map(len, batches)) <= 40


OUTAGE = """
import pathlib
from tailrace import Unavailable

async def on_order(event):
    if not pathlib.Path("open").exists():
        raise Unavailable("the database restarts")
    with open("handled", "a") as file:
        print(event.document_key["_id"], file=file)
"""


def test_12_an_outage_of_a_destination_is_waited_out(shop: Shop, tailrace: Daemon) -> None:
    """Nothing becomes a dead letter meanwhile. The status names the handler and the cause, and the
    other handler of the scope goes on."""
    file = tailrace.configuration["handlers"]["file"]
    write_to(tailrace, OUTAGE, target="shop:on_order")
    tailrace.configuration["handlers"]["file"] = file
    tailrace.configuration["routes"][0]["handlers"].append("file")
    tailrace.start()
    shop.insert_many([{"_id": number} for number in range(10)])
    tailrace.until_events(10)
    until(lambda: tailrace.status()["state"] == "waiting", "that it waits")
    assert "handler 'mine'" in tailrace.status()["reason"]
    assert "the database restarts" in tailrace.status()["reason"]
    (tailrace.directory / "open").touch()
    until(lambda: len(tailrace.numbers("handled")) == 10, "every change")
    assert tailrace.metric("tailrace_events_handled_total", handler="mine", outcome="ok") == 10
    until(lambda: tailrace.logged("destination.recovered"), "the line that says so")
    assert len(tailrace.logged("destination.recovered")) == 1
    assert tailrace.command("dead-letters", "list").count("mine") == 0


LETTER = """
import pathlib

async def on_order(event):
    if event.document_key["_id"] == 1 and not pathlib.Path("fixed").exists():
        raise ValueError("no total")
    with open("handled", "a") as file:
        print(event.document_key["_id"], file=file)
"""


def test_13_what_a_handler_cannot_handle_becomes_a_dead_letter_and_can_be_replayed(
    shop: Shop, tailrace: Daemon
) -> None:
    """After the last attempt the event is stored with its error, and the others go on. Later
    changes of its document follow it, so that a replay keeps their order."""
    tailrace.configuration["http"] = {"port": free_port()}
    write_to(
        tailrace,
        LETTER,
        target="shop:on_order",
        retry={"attempts": 2, "first_seconds": 0.01, "cap_seconds": 0.01},
    )
    tailrace.start()
    for number in (1, 2):
        shop.insert_one({"_id": number})
    shop.update_one({"_id": 1}, {"$set": {"total": 5}})
    until(lambda: tailrace.numbers("handled") == [2], "the other document")
    until(
        lambda: tailrace.metric("tailrace_events_handled_total", outcome="dead_letter") == 2,
        "both changes of the first document",
    )
    assert "ValueError: no total" in tailrace.command("dead-letters", "list")
    (tailrace.directory / "fixed").touch()
    tailrace.command("dead-letters", "replay")
    assert tailrace.numbers("handled") == [2, 1, 1]


def test_14_documents_that_were_there_before_come_once_and_in_their_place(
    shop: Shop, tailrace: Daemon
) -> None:
    """With ``snapshot: initial`` each existing document is an event ``read``, between two barriers.
    A change of it comes before its row, or before the first barrier, if the row has the change
    already, and else after it."""
    shop.insert_many([{"_id": number} for number in range(100)])
    tailrace.configuration["scopes"][0]["snapshot"] = "initial"
    tailrace.start()
    shop.update_one({"_id": 7}, {"$set": {"state": "paid"}})
    until(lambda: "snapshotEnd" in kinds(tailrace) and "update" in kinds(tailrace), "everything")
    rows = {key(event): event for event in tailrace.events() if event["operationType"] == "read"}
    assert sorted(rows) == list(range(100))
    assert next(kind for kind in kinds(tailrace) if kind != "update") == "snapshotBegin"
    of_seven = [event["operationType"] for event in tailrace.events() if key(event) == 7]
    assert of_seven == (
        ["update", "read"] if "state" in rows[7]["fullDocument"] else ["read", "update"]
    )


def kinds(run: Daemon) -> list[str]:
    return [event["operationType"] for event in run.events()]


def key(event: dict[str, Any]) -> int:
    """The ``_id`` of the event's document; -1 for a barrier."""
    return int(event.get("documentKey", {"_id": {"$numberInt": -1}})["_id"]["$numberInt"])


def test_15_of_two_replicas_one_follows_the_scope_and_the_other_takes_over(
    orders: Orders, shop: Shop
) -> None:
    """Processes that share a store need no other coordination. When the owner is killed, the other
    one goes on from its checkpoint: nothing is missing."""
    shared = {
        "store": {"type": "mongodb", "database": f"{orders.database}_store"},
        "handlers": {"file": {"type": "jsonl", "path": "events.jsonl", "json": "canonical"}},
    }
    runs = [
        orders.daemon(name, replicas={"lease_seconds": 2, "name": name}, **shared).start()
        for name in ("one", "two")
    ]

    def owners() -> list[Daemon]:
        return [run for run in runs if run.metric("tailrace_lease_held", scope="orders") == 1]

    owner = until(lambda: owners()[0] if len(owners()) == 1 else None, "an owner")
    (other,) = [run for run in runs if run is not owner]
    shop.insert_many([{"_id": number} for number in range(50)])
    owner.until_events(50)
    owner.signal(signal.SIGKILL)
    owner.wait()
    shop.insert_many([{"_id": number} for number in range(50, 100)])
    until(lambda: set(owner.ids()) | set(other.ids()) == set(range(100)), "every change")
    assert other.status()["lease"] == {"owner": "two" if other is runs[1] else "one"} | {
        "epoch": other.status()["lease"]["epoch"],
        "held": True,
    }


TABLE = """
import sqlite3
from tailrace import Batch, Fenced, ScopeContext

class Orders:
    def __init__(self, path: str) -> None:
        self.path = path

    async def __aenter__(self):
        self.db = sqlite3.connect(self.path)
        self.db.execute("CREATE TABLE IF NOT EXISTS changes (id INTEGER)")
        self.db.execute("CREATE TABLE IF NOT EXISTS position (scope TEXT PRIMARY KEY, text TEXT)")
        return self

    async def __aexit__(self, *error):
        self.db.close()

    async def begin(self, scope: ScopeContext) -> str | None:
        row = self.db.execute("SELECT text FROM position WHERE scope = ?", (scope.name,)).fetchone()
        return row and row[0]

    async def write(self, batch: Batch) -> None:
        with self.db as db:
            if await self.begin(batch.scope) != batch.former:
                raise Fenced("another process has written since")
            for event in batch:
                db.execute("INSERT INTO changes VALUES (?)", (event.document_key["_id"],))
            db.execute("REPLACE INTO position VALUES (?, ?)", (batch.scope.name, batch.position))
"""


def test_16_a_class_with_options_that_stores_its_position_gets_each_change_once(
    shop: Shop, tailrace: Daemon
) -> None:
    """Its options are its constructor's arguments. It stores ``batch.position`` with its data:
    after SIGKILL at any moment no change is missing, and none comes twice."""
    write_to(tailrace, TABLE, target="shop:Orders", options={"path": "orders.db"}, batch_size=7)
    tailrace.start()

    def changes() -> list[int]:
        with sqlite3.connect(tailrace.directory / "orders.db") as db:
            return [number for (number,) in db.execute("SELECT id FROM changes")]

    for begin in (0, 100, 200):
        shop.insert_many([{"_id": number} for number in range(begin, begin + 100)])
        until(lambda: len(changes()) > begin, "some changes")  # noqa: B023
        tailrace.kill()
        tailrace.start()
    until(lambda: len(changes()) >= 300, "every change")
    assert tailrace.stop() == 0
    assert changes() == list(range(300))


def test_17_a_table_equals_its_collection(shop: Shop, tailrace: Daemon, java: None) -> None:
    """``parquet`` lands each change once, and ``tailrace pipeline`` folds the changes into a Delta
    table with the documents as they are now: any reader of Delta can query it."""
    tailrace.configuration["handlers"] = {"lake": {"type": "parquet", "path": "lake"}}
    tailrace.configuration["routes"] = [{"scope": "orders", "handlers": ["lake"]}]
    settings = {"lake": "lake", "tables": "tables", "master": "local[2]", "spark": SETTINGS}
    tailrace.configuration["pipeline"] = settings
    tailrace.start()
    shop.insert_many([{"_id": number, "state": "new"} for number in range(3)])
    shop.update_one({"_id": 1}, {"$set": {"state": "paid"}})
    shop.delete_one({"_id": 2})
    until(
        lambda: tailrace.metric("tailrace_events_handled_total", handler="lake") == 5, "5 changes"
    )
    assert tailrace.stop() == 0
    command = [sys.executable, "-m", "tailrace", "pipeline", "--config", "config.yaml", "--once"]
    subprocess.run(command, cwd=tailrace.directory, check=True)
    table = DeltaTable(tailrace.directory / "tables" / "current" / f"{shop.database.name}.orders")
    rows = table.to_pyarrow_table().to_pylist()
    documents = [json_util.loads(row["document"]) for row in rows]
    assert documents == list(shop.find().sort("_id"))
