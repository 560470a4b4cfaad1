"""``tailrace verify`` with real destinations: rows that were changed by hand, and no others."""

import json
from typing import Any

import bson
import psycopg
import pytest

from tailrace.destinations.postgresql.rows import row_id
from tailrace.event.document_key import identity
from tests.daemon import WAIT_SECONDS, Daemon, until
from tests.destinations.copying import Copying
from tests.verifying import differing, verified
from tests.writers import Writers

pytestmark = pytest.mark.parametrize("kind", ["postgresql"], scope="session")


def number(key: int) -> str:
    return f'{{"$numberInt":"{key}"}}'


def is_copied(run: Daemon) -> bool:
    snapshot = run.status()["snapshot"]
    return snapshot is not None and bool(snapshot["state"] == "done")


@pytest.mark.parametrize(("driver", "lookup"), [("motor", "lookup"), ("pymongo", "required")])
def test_rows_that_were_changed_by_hand_are_found_beside_writers(
    copied: Copying, rows: psycopg.Connection, driver: str, lookup: str
) -> None:
    copied.insert(range(1000), text="a")
    scope = {"full_document": lookup, "snapshot": "initial"}
    run = copied.daemon(scope=scope, mongodb={"uri": copied.orders.uri, "driver": driver}).start()
    until(lambda: is_copied(run), "the snapshot")
    assert verified(run)["equal"] == 1000
    chosen = "key = (%s)"
    for statement, key in (
        ("DELETE FROM orders WHERE", 901),
        ("UPDATE orders SET document = jsonb_set(document, '{n}', '1') WHERE", 902),
        ("UPDATE orders SET document = document - 'text' WHERE", 903),
    ):
        text = f'{{"_id":{number(key)}}}'
        assert rows.execute(f"{statement} {chosen}".encode(), (text,)).rowcount == 1
    client, database = copied.collection.database.client, copied.orders.database
    with Writers(client, database, ["orders"], range(500), 1, pause=0.02, behind=run.is_behind):
        found = verified(run)
        assert differing(found) == [
            ("different", number(902), ("document.n",)),
            ("different", number(903), ("document.text",)),
            ("missing", number(901), ()),
        ]
        text, id = f'{{"_id":{number(9999)}}}', row_id(identity(bson.encode({"_id": 9999}), 0))
        extra = "INSERT INTO orders SELECT %s, tailrace_version, %s, document "
        extra += "FROM orders WHERE key = %s"
        rows.execute(extra.encode(), (id, text, f'{{"_id":{number(904)}}}'))
        code, errors = run.refused("verify", "orders", "--repair", "--dry-run")
        assert (code, "4 keys come again to it" in errors) == (1, True), errors
        assert verified(run, "--repair")["keys"] == []
        rows.execute("DELETE FROM orders WHERE key = %s", (f'{{"_id":{number(905)}}}',))
        (repaired,) = verified(run, "--repair")["repairs"]
        assert repaired["keys"] == 1
    copied.until_equal()
    assert run.stop() == 0


def test_an_outage_and_a_reload_in_the_middle_are_waited_out(
    copied: Copying, destination: Any
) -> None:
    copied.insert(range(1000), text="a")
    run = copied.daemon(scope={"full_document": "lookup", "snapshot": "initial"}).start()
    until(lambda: is_copied(run), "the snapshot")
    with run.begun("verify", "orders", "--documents-per-second", "200") as command:
        until(lambda: shown(run)["compared"] > 30, "the first documents")
        destination.stop()
        until(lambda: shown(run)["reason"], "the outage")
        destination.start()
        run.configuration["handlers"]["it"]["batch_size"] = 33
        run.configured()
        assert "scopes restarted: orders" in run.command("reload")
        _, errors = command.communicate(WAIT_SECONDS)
        assert command.returncode == 0, errors
    assert (shown(run)["compared"], shown(run)["equal"]) == (1000, 1000)
    assert run.stop() == 0


def shown(run: Daemon) -> dict[str, Any]:
    found: dict[str, Any] | None = json.loads(run.get("/scopes/orders/verify")[1])["verification"]
    return found or {"compared": 0}
