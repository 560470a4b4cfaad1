"""``tailrace verify`` of a file and a lake beside writers: what was changed by hand is found."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace.event.extended_json import to_json
from tailrace.lake.segment import FOOTER_KEY
from tests.daemon import Daemon, until
from tests.lake import landed
from tests.machine import free_port
from tests.orders import Orders
from tests.verifying import differing, verified
from tests.writers import Writers

Rows = dict[Any, tuple[bytes, bytes]]
"""By ``_id``, document key and document."""


def damaged(rows: Rows) -> Rows:
    """One row that is another document's, one that has no document, one of another type, two that
    are swapped."""

    def of(number: int, n: Any) -> bytes:
        return bson.encode({"_id": number, "n": n})

    return {
        **rows,
        501: (bson.encode({"_id": 9999}), of(9999, 0)),
        502: (rows[502][0], of(502, 0.0)),
        503: (rows[503][0], rows[504][1]),
        504: (rows[504][0], rows[503][1]),
    }


FOUND = [
    ("different", 502, ("n",)),
    ("different", 503, ("_id",)),
    ("different", 504, ("_id",)),
    ("missing", 501, ()),
    ("too_many", 9999, ()),
]


def damage_file(directory: Path) -> None:
    """Writes the file again, as another one."""
    lines = [json.loads(line) for line in (directory / "events.jsonl").read_bytes().splitlines()]
    read = {number_of(e["documentKey"]): e for e in lines if e["operationType"] == "read"}
    raw = {n: (bson.encode({"_id": n}), bson.encode({"_id": n, "n": 0})) for n in read}
    for number, (key, document) in damaged(raw).items():
        read[number]["documentKey"] = json.loads(to_json(key, canonical=True))
        read[number]["fullDocument"] = json.loads(to_json(document, canonical=True))
    (directory / "new").write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    os.replace(directory / "new", directory / "events.jsonl")


def number_of(key: dict[str, Any]) -> int:
    return int(key["_id"]["$numberInt"])


def damage_lake(directory: Path) -> None:
    """Writes the segment again that has the rows."""
    for path in landed(directory / "lake", "orders"):
        table = pq.ParquetFile(path).read()
        events = table.to_pylist()
        raw = {
            bson.decode(event["document_key"])["_id"]: (
                event["document_key"],
                event["full_document"],
            )
            for event in events
            if event["operation"] == "read"
        }
        if 501 not in raw:
            continue
        changed = damaged(raw)
        for event in events:
            if event["operation"] == "read":
                number = bson.decode(event["document_key"])["_id"]
                event["document_key"], event["full_document"] = changed[number]
        footer = json.loads(pq.read_metadata(path).metadata[FOOTER_KEY])
        del footer["checksum"]
        with pq.ParquetWriter(directory / "new", table.schema, store_schema=False) as new:
            new.write_table(pa.Table.from_pylist(events, table.schema))
            new.add_key_value_metadata({FOOTER_KEY: json.dumps(footer)})
        os.replace(directory / "new", path)


LAKE = {"type": "parquet", "path": "lake", "segment_seconds": 0.2}
FILE = {"type": "jsonl", "path": "events.jsonl", "json": "canonical"}


@pytest.mark.parametrize(
    ("driver", "handler", "scope", "damage"),
    [
        ("motor", FILE, {"full_document": "lookup"}, damage_file),
        ("pymongo", LAKE, {}, damage_lake),
    ],
)
def test_a_log_is_folded_and_what_was_changed_by_hand_is_found(
    orders: Orders,
    driver: str,
    handler: dict[str, Any],
    scope: dict[str, Any],
    damage: Callable[[Path], None],
) -> None:
    orders.insert(*range(1000), n=0)
    run = orders.daemon(
        driver=driver,
        scope={"snapshot": "initial", **scope},
        handlers={"file": handler},
        http={"port": free_port()},
    ).start()
    until(lambda: is_done(run), "the snapshot")
    number = '{"$numberInt":"%d"}'
    with orders.server.client() as client:
        for seed, wanted in enumerate(([], FOUND)):
            if wanted:
                until(lambda: run.status()["in_flight"]["events"] == 0, "the last changes")
                damage(run.directory)
            writers = Writers(client, orders.database, ["orders"], range(400), seed, pause=0.002)
            writers.behind = run.is_behind
            with writers:
                found = verified(run)
            assert differing(found) == [(kind, number % n, at) for kind, n, at in wanted]
            assert (found["equal"] > 500, found["in_flux"]) == (True, 0)
    assert verified(run, "--repair")["keys"] == []
    assert run.stop() == 0


def is_done(run: Daemon) -> bool:
    snapshot = run.status()["snapshot"]
    return bool(snapshot["state"] == "done") and run.status()["in_flight"]["events"] == 0
