"""``tailrace verify`` with a real server: sabotaged rows are found, and nothing else differs."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import bson
import pytest

from tests.daemon import Daemon, until
from tests.machine import free_port
from tests.orders import Orders
from tests.verifying import TABLE, by_hand, differing, verified
from tests.writers import Writers

TARGETS = {"positioned": "mine:Positioned", "without": "mine:Table"}


def following(orders: Orders, *, driver: str, target: str, full_document: str) -> Daemon:
    scope = {"full_document": full_document, "snapshot": "initial"}
    mine = {"mine": {"target": TARGETS[target], "batch_size": 50}}
    http = {"port": free_port()}
    return orders.daemon(driver=driver, scope=scope, targets=mine, source=TABLE, http=http)


def key(number: int) -> bytes:
    return bson.encode({"_id": number})


def is_done(run: Daemon) -> bool:
    snapshot = run.status()["snapshot"]
    return bool(snapshot["state"] == "done") and run.status()["in_flight"]["events"] == 0


@pytest.mark.parametrize(
    ("driver", "target", "full_document"),
    [
        ("motor", "positioned", "lookup"),
        ("pymongo", "positioned", "updateLookup"),
        ("pymongo", "without", "lookup"),
    ],
)
def test_sabotaged_rows_are_found_beside_writers_and_nothing_else(
    orders: Orders, driver: str, target: str, full_document: str
) -> None:
    orders.insert(*range(1000), n=0)
    run = following(orders, driver=driver, target=target, full_document=full_document).start()
    until(lambda: is_done(run), "the snapshot")
    assert verified(run)["equal"] == 1000
    with by_hand(run) as rows:
        rows.execute("DELETE FROM rows WHERE key = ?", (key(501),))
        rows.execute("UPDATE rows SET n = '0.0' WHERE key = ?", (key(502),))
        strange = bson.encode({"_id": 503, "n": 0.0})
        rows.execute("UPDATE rows SET document = ? WHERE key = ?", (strange, key(503)))
        sql = "INSERT INTO rows SELECT place, ?, document, n FROM rows WHERE key = ?"
        rows.execute(sql, (key(9999), key(504)))
        rows.execute(sql, (b"?", key(504)))
    with (
        orders.server.client() as client,
        Writers(
            client, orders.database, ["orders"], range(400), 1, pause=0.002, behind=run.is_behind
        ),
    ):
        found = verified(run)
    number = '{"$numberInt":"%d"}'
    assert differing(found) == [
        ("different", number % 502, ("n",)),
        ("different", number % 503, ("document",)),
        ("missing", number % 501, ()),
        ("too_many", "b'?'", ()),
        ("too_many", number % 9999, ()),
    ]
    assert found["compared"] == sum(
        found[name]
        for name in ("equal", "different", "missing", "too_many", "in_flux", "set_aside")
    )
    assert run.stop() == 0


def test_it_goes_on_after_a_pause_and_a_restart_and_says_no_to_what_cannot_be(
    orders: Orders,
) -> None:
    orders.insert(*range(400), n=0)
    run = following(orders, driver="motor", target="positioned", full_document="lookup").start()
    until(lambda: is_done(run), "the snapshot")
    with by_hand(run) as rows:
        rows.execute("DELETE FROM rows WHERE key = ?", (key(2),))
    with run.begun("verify", "orders", "--documents-per-second", "40") as command:
        until(lambda: shown(run)["compared"] > 10, "the first documents")
        assert "is being verified" in run.refused("verify", "orders")[1]
        assert "paused" in run.command("verify", "orders", "--pause")
        paused = shown(run)
        assert (paused["state"], paused["compared"] < 400) == ("paused", True)
        run.kill()
        assert command.wait(60) == 2, "its daemon is gone"
    run.start()
    until(lambda: is_followed(run), "the scope")
    assert shown(run)["state"] == "paused"
    assert shown(run)["compared"] <= paused["compared"]
    run.command("verify", "orders", "--resume")
    until(lambda: shown(run)["state"] == "done", "the end")
    assert differing(shown(run)) == [("missing", '{"$numberInt":"2"}', ())]
    assert shown(run)["compared"] == 400
    assert run.refused("verify", "orders", "--cancel")[0] == 2
    for arguments, told in (
        (("--sample", "2"), "sample"),
        (("--collection", "none"), "has no collection none"),
        (("--filter", '{"$no": 1}'), "unknown top level operator"),
        (("--filter", "x"), "not Extended JSON"),
        (("--key", "x"), "not Extended JSON"),
        (("--key", "1", "--filter", '{"n": 1}'), "keys cannot be combined"),
        (("--handler", "no"), "has no handler 'no'"),
        (("--cancel", "--sample", "0.5"), "takes only --handler"),
    ):
        code, errors = run.refused("verify", "orders", *arguments)
        assert (code, told in errors, errors.count("\n")) == (2, True, 1), errors
    labels = {"scope": "orders", "handler": "mine"}
    assert run.metric("tailrace_differing_documents", **labels) == 1
    assert verified(run, "--key", "2", "--values")["missing"] == 1
    assert verified(run, "--filter", '{"_id": {"$lt": 2}}')["compared"] == 2
    assert 0 < verified(run, "--sample", "0.5")["compared"] < 400
    assert run.stop() == 0


def test_another_process_that_takes_the_scope_over_goes_on(orders: Orders, tmp_path: Path) -> None:
    orders.insert(*range(300), n=0)
    source = TABLE.replace('"table.db"', repr(str(tmp_path / "table.db")))
    store = {"type": "mongodb", "database": f"{orders.database}_store"}
    one, other = (
        orders.daemon(
            name,
            scope={"full_document": "lookup", "snapshot": "initial"},
            targets={"mine": {"target": "mine:Positioned"}},
            source=source,
            store=store,
            replicas={"name": name, "lease_seconds": 60},
            http={"port": free_port()},
        )
        for name in ("one", "other")
    )
    one.start()
    until(lambda: is_done(one), "the snapshot")
    other.start()
    assert "ask there" in other.refused("verify", "orders")[1]
    connection = sqlite3.connect(tmp_path / "table.db", timeout=20)
    with connection:
        connection.execute("DELETE FROM rows WHERE key = ?", (key(299),))
    connection.close()
    with one.begun("verify", "orders", "--documents-per-second", "40"):
        until(lambda: shown(one)["compared"] > 10, "the first documents")
        assert one.stop() == 0
    until(lambda: shown(other).get("state") == "done", "the end, in the other process")
    assert differing(shown(other)) == [("missing", '{"$numberInt":"299"}', ())]
    assert shown(other)["compared"] == 300
    labels = {"scope": "orders", "handler": "mine"}
    assert (other.metric("tailrace_verified_through_timestamp", **labels) or 0) > 1_700_000_000
    assert other.stop() == 0


def test_rounds_begin_by_themselves_and_are_remembered(orders: Orders) -> None:
    orders.insert(*range(300), n=0)
    run = following(orders, driver="pymongo", target="positioned", full_document="lookup").start()
    until(lambda: is_done(run), "the snapshot")
    with by_hand(run) as rows:
        rows.execute("DELETE FROM rows WHERE key = ?", (key(2),))
    began = run.status()["since"]
    schedule = {"every": "24h", "documents_per_second": 20}
    run.configuration["routes"][0]["verify"] = schedule
    run.configured()
    assert "applied: routes.verify" in run.command("reload")
    until(lambda: proof(run)["state"] == "running", "a round")
    assert proof(run)["by"] == "verify.every"
    assert verified(run)["missing"] == 1, "it takes the place of the round"
    assert run.status()["since"] == began, "the scope was not restarted"
    told = proof(run)
    assert (told["state"], told["whole"], told["differences"]) == ("done", True, 1)
    assert told["due"] > told["ended"]
    labels = {"scope": "orders", "handler": "mine"}
    names = ("differing_documents", "verified_through_timestamp", "verified_documents_total")
    before = [run.metric(f"tailrace_{name}", **labels) for name in names]
    assert before[0] == 1
    assert before[2] is not None
    assert before[2] >= 300
    verified(run, "--key", "7")
    assert [run.metric(f"tailrace_{name}", **labels) for name in names] == before
    assert run.stop() == 0
    run.start()
    until(lambda: proof(run) and proof(run)["due"], "what is stored")
    assert [run.metric(f"tailrace_{name}", **labels) for name in names] == before
    assert proof(run)["proven"] == told["proven"]
    late = run.metric("tailrace_verification_late_timestamp", **labels)
    assert late == (before[1] or 0) + 2 * 86_400
    assert run.stop() == 0


def proof(run: Daemon) -> Any:
    return run.status()["handlers"]["mine"]["verification"]


def test_a_handler_that_holds_no_rows_cannot_be_asked(orders: Orders) -> None:
    run = orders.daemon(handlers={"file": {"type": "log"}}, http={"port": free_port()}).start()
    code, errors = run.refused("verify", "orders")
    assert code == 2
    assert "be asked for its rows" in errors
    assert run.stop() == 0


def shown(run: Daemon) -> dict[str, Any]:
    code, text = run.get("/scopes/orders/verify")
    assert code == 200, text
    found: dict[str, Any] = json.loads(text)["verification"] or {"compared": 0}
    return found


def is_followed(run: Daemon) -> bool:
    return run.status()["state"] in ("streaming", "caught_up")


EVEN = """

def even(documents):
    return [{**d, "n": 10 * d["n"]} if d["n"] % 2 == 0 else None for d in documents]
"""


@pytest.mark.parametrize("target", TARGETS)
def test_rows_are_expected_as_fields_and_transform_make_them(orders: Orders, target: str) -> None:
    """Also that there are none. What was there before a document is left out goes."""
    orders.insert(*range(20), n=2, ssn="123-45-6789")
    mine: dict[str, Any] = {"target": TARGETS[target], "transform": "mine:even"}
    mine["fields"] = {"mask": {"ssn": "***"}, "set": {"region": "eu"}}
    run = orders.daemon(
        scope={"full_document": "lookup", "snapshot": "initial"},
        targets={"mine": mine},
        source=TABLE + EVEN,
        http={"port": free_port()},
    ).start()
    until(lambda: is_done(run), "the snapshot")
    with orders.server.client() as client:
        collection = client[orders.database].orders
        collection.update_many({"_id": {"$lt": 5}}, {"$set": {"n": 3}})
        collection.insert_one({"_id": 20, "n": 1})
        run.until_handled(mine=28)
    assert verified(run)["equal"] == 15
    with by_hand(run) as rows:
        held = rows.execute("SELECT document FROM rows").fetchall()
        documents = {each["_id"]: each for each in (bson.decode(row[0]) for row in held)}
        sql = "INSERT INTO rows SELECT place, ?, document, n FROM rows WHERE key = ?"
        rows.execute(sql, (key(4), key(5)))
        rows.execute("UPDATE rows SET n = '2' WHERE key = ?", (key(6),))
    assert set(documents) == {*range(5, 20)}
    assert documents[5] == {"_id": 5, "n": 20, "ssn": "***", "region": "eu"}
    assert differing(verified(run)) == [
        ("different", '{"$numberInt":"6"}', ("n",)),
        ("too_many", '{"$numberInt":"4"}', ()),
    ]
    assert verified(run, "--repair")["equal"] == 15
    assert run.stop() == 0
