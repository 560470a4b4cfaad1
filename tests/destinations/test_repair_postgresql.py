"""``tailrace verify --repair`` with PostgreSQL: a restored backup, large documents, and repairs
that race with changes of the same documents."""

import psycopg
import pytest

from tests.daemon import until
from tests.destinations.copying import Copying
from tests.destinations.test_verify import is_copied, number
from tests.verifying import differing, verified
from tests.writers import Writers, mixed_ids

LARGE = "x" * (15 * 1024 * 1024)
ROUNDS = 3


pytestmark = pytest.mark.parametrize("kind", ["postgresql"], scope="session")


def test_a_restored_backup_a_changed_column_and_large_documents_are_repaired(
    copied: Copying, rows: psycopg.Connection
) -> None:
    """The backup has its position, which is in the past: the daemon that runs does not know."""
    copied.insert(range(100), text="a")
    scope = {"full_document": "required", "snapshot": "initial"}
    run = copied.daemon(handler={"columns": {"text": "text"}}, scope=scope).start()
    until(lambda: is_copied(run), "the snapshot")
    listed = rows.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    tables = [str(name) for (name,) in listed.fetchall()]
    for table in tables:
        rows.execute(f"CREATE TABLE backup_{table} AS TABLE {table}".encode())
    copied.insert(range(100, 150), text="b")
    copied.count(range(20))
    copied.until_equal()
    with rows.transaction():
        for table in tables:
            rows.execute(f"DELETE FROM {table}".encode())
            rows.execute(f"INSERT INTO {table} SELECT * FROM backup_{table}".encode())
    found = verified(run, "--handler", "it")
    assert (found["missing"], found["different"], found["equal"]) == (50, 20, 80)
    assert verified(run, "--handler", "it", "--repair")["keys"] == []
    copied.insert(range(150, 153), text=LARGE)
    copied.until_equal()
    chosen = f'{{"_id":{number(151)}}}', f'{{"_id":{number(152)}}}', f'{{"_id":{number(7)}}}'
    rows.execute("DELETE FROM orders WHERE key IN (%s, %s)", chosen[:2])
    rows.execute("UPDATE orders SET text = 'mine' WHERE key = %s", chosen[2:])
    assert differing(verified(run, "--handler", "it")) == [
        ("different", number(7), ("text",)),
        ("missing", number(151), ()),
        ("missing", number(152), ()),
    ]
    assert verified(run, "--handler", "it", "--repair")["keys"] == []
    assert run.stop() == 0


@pytest.mark.parametrize("driver", ["motor", "pymongo"])
def test_repairs_race_with_changes_of_the_same_documents(
    copied: Copying, rows: psycopg.Connection, driver: str
) -> None:
    """Rows without a document, too: their documents are inserted again meanwhile."""
    scope = {"full_document": "lookup", "snapshot": "initial"}
    run = copied.daemon(scope=scope, mongodb={"uri": copied.orders.uri, "driver": driver}).start()
    until(lambda: is_copied(run), "the snapshot")
    client = copied.collection.database.client
    ids, behind = mixed_ids(200), run.is_behind
    writing = Writers(
        client, copied.orders.database, ["orders"], ids, seed=3, pause=0.005, behind=behind
    )
    known = "INSERT INTO known SELECT * FROM orders ON CONFLICT DO NOTHING"
    with writing:
        until(lambda: writing.written > 500, "the first changes")
        until(lambda: rows.execute("SELECT to_regclass('orders')").fetchone() != (None,), "rows")
        rows.execute("CREATE TABLE known (LIKE orders INCLUDING ALL)")
        for _ in range(ROUNDS):
            rows.execute(known)
            rows.execute("INSERT INTO orders SELECT * FROM known ON CONFLICT DO NOTHING")
            rows.execute("DELETE FROM orders WHERE random() < 0.2")
            rows.execute(
                "UPDATE orders SET document = document || '{\"v\": 1}' WHERE random() < 0.2"
            )
            assert verified(run, "--handler", "it", "--repair")["compared"] > 0
    assert verified(run, "--handler", "it", "--repair")["keys"] == []
    count = rows.execute("SELECT count(*) FROM orders").fetchone()
    assert count == (copied.collection.count_documents({}),)
    assert run.stop() == 0
