"""Lands a few changes as the daemon does, for a run of the pipeline without a server."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from typing import Any

import bson
from bson.decimal128 import Decimal128
from bson.timestamp import Timestamp

from tailrace.destinations.parquet.landing import Landing
from tailrace.engine import RunIdentity
from tailrace.lake.segment import Documents
from tailrace.lake.writable_lake import WritableLake

COLUMNS = {
    "shop.orders": {
        "total": "decimal",
        "at": "timestamp",
        "customer.name": "string",
        "number": "long",
        "weight": "double",
        "paid": "boolean",
    }
}
"""The fields of the documents, as typed columns."""

_DOCUMENTS = 100
_BEGIN = 1_700_000_000
"""Seconds since 1970."""


def sample() -> Callable[[str], None]:
    """A function that lands the next batch in the lake at a path."""
    numbers, documents = count(1), count()

    def land(lake: str) -> None:
        landing = Landing(WritableLake.open(lake), "orders", Documents.BSON)
        landing.begin(RunIdentity("orders", "sample", "sample", 1))
        ids = [next(documents) for _ in range(_DOCUMENTS)]
        landing.append(bson.encode(_head(next(numbers)) | change) for change in _changes(ids))
        landing.commit()

    return land


def _changes(ids: list[int]) -> Iterator[dict[str, Any]]:
    """Inserts and updates, and a delete whose document is inserted again."""
    for id in ids:
        price = {"total": Decimal128(f"{id}.50"), "weight": id / 7, "paid": id % 2 == 0}
        customer = {"name": f"customer {id}"}
        at = datetime.fromtimestamp(id, UTC)
        document = {"_id": id, "number": id, "at": at, "customer": customer, **price}
        yield _change("insert", document)
        updated = {"updatedFields": {"number": id + 1}, "removedFields": [], "truncatedArrays": []}
        document |= {"number": id + 1}
        yield {**_change("update", document), "updateDescription": updated}
    yield {"operationType": "delete", "documentKey": {"_id": ids[0]}}
    yield _change("insert", {"_id": ids[0]})


def _change(operation: str, document: dict[str, Any]) -> dict[str, Any]:
    key = {"_id": document["_id"]}
    return {"operationType": operation, "documentKey": key, "fullDocument": document}


def _head(number: int) -> dict[str, Any]:
    """What every event has. Tokens grow, as those of mongod."""
    return {
        "_id": {"_data": f"82{number:016X}"},
        "clusterTime": Timestamp(_BEGIN + number, 1),
        "wallTime": datetime.fromtimestamp(_BEGIN + number, UTC),
        "ns": {"db": "shop", "coll": "orders"},
    }
