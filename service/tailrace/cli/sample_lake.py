"""Lands a few changes as the daemon does, for a run of the pipeline without a server."""

from collections.abc import Callable
from datetime import UTC, datetime

import anyio
from bson.decimal128 import Decimal128

from tailrace.testing import Changes, Harness

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


def sample() -> Callable[[str], None]:
    """A function that lands the next batch in the lake at a path."""
    changes = Changes()

    def land(lake: str) -> None:
        anyio.run(_land, lake, changes)

    return land


async def _land(lake: str, changes: Changes) -> None:
    first = len(changes.documents)
    async with Harness({"type": "parquet", "path": lake}, changes=changes) as harness:
        for id in range(first, first + _DOCUMENTS):
            price = {"total": Decimal128(f"{id}.50"), "weight": id / 7, "paid": id % 2 == 0}
            customer = {"name": f"customer {id}"}
            at = datetime.fromtimestamp(id, UTC)
            changes.insert({"_id": id, "number": id, "at": at, "customer": customer, **price})
            changes.update(id, {"number": id + 1})
        changes.delete(first)
        changes.insert({"_id": first})
        await harness.handled()
