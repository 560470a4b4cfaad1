"""What the source serves: change events in mongod's layout, encoded before the measurement.

Of five events, two are inserts, two are updates with lookup, and one is a delete. Documents look
like orders: half of their bytes are fields, half is text. Their ``_id``s are ObjectIds, numbers or
texts. Events of the kind ``various`` are of a sharded collection with numbers, texts and UUIDs in
turns, read with expanded events, and ten of forty are in a transaction.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import bson
from bson import Binary, Int64, ObjectId
from bson.timestamp import Timestamp

from tailrace.testing.tokens import event_token, high_water_token
from tests.bench.namespace import NAMESPACE
from tests.scripted import wire

SIXTEEN_MEGABYTES = 16 * 1024 * 1024

Kind = Literal["object_ids", "numbers", "texts", "various"]

_BEGIN = 1_750_000_000
_MIX = ("insert", "update", "insert", "update", "delete")
_UUID = Binary(b"c" * 16, 4)
_STOCK_BYTES = 48 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoredReply:
    """The array of a reply, ready to send; its number of events, and the last one's time."""

    array: bytes
    events: int
    time: Timestamp


def stored_replies(
    document_bytes: int, events: int | None, kind: Kind = "object_ids"
) -> list[StoredReply]:
    """Different replies of ``events`` events each (``None``: of 16 MB), as many as memory allows.

    ``document_bytes`` is the size of the documents; an event has about 400 bytes more.
    """
    numbers = iter(range(10**9))
    replies: list[StoredReply] = []
    size = 0
    while not replies or size < _STOCK_BYTES:
        raw, last = _take(document_bytes, events, numbers, kind)
        replies.append(StoredReply(wire.array(raw), len(raw), last))
        size += len(replies[-1].array)
        if len(replies) == 1000:
            break
    return replies


def event(number: int, document_bytes: int, kind: Kind = "object_ids") -> dict[str, Any]:
    """One event of the mix, with its fields in mongod's order; encode it in that order."""
    operation = _MIX[number % len(_MIX)]
    time = Timestamp(_BEGIN + number // 1000, number % 1000 + 1)
    identity, various = _identity(number, kind), kind == "various"
    found: dict[str, Any] = {}
    if various and number % 40 < 10:
        found = {"txnNumber": Int64(number // 40), "lsid": {"id": _UUID, "uid": b"u" * 32}}
    found |= {
        "_id": event_token(time, 0, NAMESPACE, number),
        "operationType": operation,
        "clusterTime": time,
    }
    if various:
        found["collectionUUID"] = _UUID
    found["wallTime"] = datetime.fromtimestamp(time.time, UTC)
    if operation != "delete":
        found["fullDocument"] = document(identity, number, document_bytes)
    database, _, collection = NAMESPACE.partition(".")
    found["ns"] = {"db": database, "coll": collection}
    found["documentKey"] = {"region": "eu", "_id": identity} if various else {"_id": identity}
    if operation == "update":
        found["updateDescription"] = {
            "updatedFields": {"status": "paid", "version": number % 7},
            "removedFields": [],
            "truncatedArrays": [],
        }
    return found


def _identity(number: int, kind: Kind) -> Any:
    match kind:
        case "object_ids":
            return ObjectId(f"{_BEGIN:08x}{number:016x}")
        case "numbers":
            return number
        case "texts":
            return f"order-{number:09}"
    ids = (Int64(number), f"order-{number:09}", Binary(number.to_bytes(16, "big"), 4))
    return ids[number % len(ids)]


def _take(
    document_bytes: int, events: int | None, numbers: Iterator[int], kind: Kind
) -> tuple[list[bytes], Timestamp]:
    raw: list[bytes] = []
    size = 0
    while len(raw) < events if events else size < SIXTEEN_MEGABYTES - 2 * document_bytes - 1000:
        found = event(next(numbers), document_bytes, kind)
        raw.append(wire.in_order(found))
        size += len(raw[-1]) + 8
    return raw, found["clusterTime"]


def document(identity: Any, number: int, size: int) -> dict[str, Any]:
    """An order of ``size`` bytes."""
    dice = random.Random(number % 1000)
    order: dict[str, Any] = {
        "_id": identity,
        "customer": f"c{number % 5000:05}",
        "status": "open",
        "total": dice.randrange(100_000) / 100,
        "version": number % 7,
        "sequence": Int64(number),
    }
    items = []
    while len(bson.encode({**order, "items": items})) < size / 2:
        items.append({"sku": f"s{dice.randrange(1000):04}", "quantity": dice.randrange(1, 9)})
    if items:
        order["items"] = items
    missing = size - len(bson.encode({**order, "note": ""}))
    order["note"] = "n" * max(missing, 0)
    return order


def tail(time: Timestamp, cursor_id: int, namespace: str = NAMESPACE) -> bytes:
    """The elements of a cursor after its batch."""
    return wire.elements(
        {
            "postBatchResumeToken": high_water_token(time),
            "id": Int64(cursor_id),
            "ns": namespace,
        }
    )
