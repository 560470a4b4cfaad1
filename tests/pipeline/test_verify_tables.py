"""``tailrace verify`` of the tables that the pipeline has made: what was changed there is found."""

import json
from collections.abc import Callable, Mapping

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.expressions import EqualTo

from tailrace.pipeline.tables.iceberg import IcebergStore
from tests.daemon import Daemon, until
from tests.machine import free_port
from tests.mongod import ReplicaSet
from tests.pipeline.pipeline import Pipeline
from tests.verifying import differing, verified
from tests.writers import Writers

pytestmark = pytest.mark.integration

KEYS = {number: f'{{"$numberInt":"{number}"}}' for number in (*range(501, 505), 9999)}


def test_rows_that_were_changed_in_a_table_are_found_and_what_is_not_published_is_in_flux(
    mongod: ReplicaSet, database: str, daemon: Callable[..., Daemon], in_format: Pipeline
) -> None:
    pipeline = in_format
    scope = {"name": "orders", "database": database, "max_await_time_ms": 100}
    run = daemon(
        mongod.uri,
        scopes=[{**scope, "snapshot": "initial"}],
        handlers={"lake": {"type": "parquet", "path": str(pipeline.lake), "segment_seconds": 0.1}},
        routes=[{"scope": "orders", "handlers": ["lake"]}],
        http={"port": free_port()},
    )
    with mongod.client() as client:
        orders = client[database].orders
        orders.insert_many([{"_id": n, "n": n} for n in range(600)])
        run.start()
        until(lambda: is_done(run), "the snapshot")
        found = verified(run)
        assert (found["equal"], noted(found)) == (600, ""), (
            "the lake, as long as there are no tables"
        )
        pipeline.run()
        run.configuration["pipeline"] = pipeline.section
        run.configured()
        assert "applied: pipeline.tables" in run.command("reload")
        found = verified(run)
        assert (found["equal"], found["compared"]) == (600, 600)
        assert "compared: current/" in noted(found)
        damage(pipeline, f"current/{database}.orders")
        ids, behind = range(300), run.is_behind
        with Writers(client, database, ["orders"], ids, seed=1, pause=0.002, behind=behind):
            orders.update_many({"_id": {"$gte": 590}}, {"$set": {"n": "new"}})
            orders.insert_one({"_id": 1000})
            found = verified(run)
        assert found["in_flux"] >= 1, "the new one; others are equal as of the publication"
    assert differing(found) == [
        ("different", KEYS[502], ("n",)),
        ("different", KEYS[503], ("_id", "n")),
        ("different", KEYS[504], ("_id", "n")),
        ("missing", KEYS[501], ()),
        ("too_many", KEYS[9999], ()),
    ]
    assert run.stop() == 0


def damage(pipeline: Pipeline, name: str) -> None:
    """A row that is another document's, one of another type, two that are swapped."""

    def document(number: int, n: str) -> str:
        return f'{{"_id":{KEYS[number]},"n":{n}}}'

    def update(number: int, **columns: str) -> None:
        change(pipeline, name, f'{{"_id":{KEYS[number]}}}', columns)

    update(502, document=document(502, '{"$numberDouble":"502.0"}'))
    update(503, document=document(504, '{"$numberInt":"504"}'))
    update(504, document=document(503, '{"$numberInt":"503"}'))
    update(501, document_key=f'{{"_id":{KEYS[9999]}}}', key="9999")


def change(pipeline: Pipeline, name: str, key: str, columns: Mapping[str, str]) -> None:
    """Changes the row of a document as users of the format do, by hand."""
    store = pipeline.store
    if not isinstance(store, IcebergStore):
        texts = {column: f"'{value}'" for column, value in columns.items()}
        table = DeltaTable(f"{pipeline.tables}/{name}")
        table.update(updates=texts, predicate=f"document_key = '{key}'")
        return
    stored = store.stored(name)
    assert stored is not None
    of_key = EqualTo("document_key", key)
    (row,) = stored.scan(of_key).to_arrow().to_pylist()
    changed = pa.Table.from_pylist([{**row, **columns}], stored.schema().as_arrow())
    stored.overwrite(changed, of_key)


def noted(found: dict[str, object]) -> str:
    collections = found["collections"]
    assert isinstance(collections, list | dict), json.dumps(found)
    every = collections.values() if isinstance(collections, dict) else collections
    return "".join(each["note"] for each in every)


def is_done(run: Daemon) -> bool:
    snapshot = run.status()["snapshot"]
    return bool(snapshot["state"] == "done") and run.status()["in_flight"]["events"] == 0
