"""Events for envelopes: every operation on a document with any ``_id``."""

from datetime import UTC, datetime
from typing import Any

from bson import Int64
from bson.timestamp import Timestamp

from tests.unit.event.documents import EVERY_ID
from tests.unit.event.events import ORDERS

OPERATIONS = ("insert", "update", "replace", "delete", "read")
IDS = {**EVERY_ID, "text to quote": 'a"\\\n\x1f é€😀', "long": Int64(7)}

TOKEN = "8265A0B0C0000000012B022C0100296E5A1004"


def change(operation: str, identity: Any) -> dict[str, Any]:
    """As mongod sends it, with both images where it has them; a row as a snapshot makes it."""
    document, key = {"_id": identity, "state": "new"}, {"_id": identity}
    head = {
        "_id": {"_data": TOKEN},
        "operationType": operation,
        "clusterTime": Timestamp(1_767_225_600, 3),
        "wallTime": datetime(2026, 1, 1, 0, 0, 0, 123000, tzinfo=UTC),
    }
    place = {"ns": ORDERS, "documentKey": key}
    before = {"fullDocumentBeforeChange": document}
    described = {"updatedFields": {"state": "new"}, "removedFields": ["gone"]}
    match operation:
        case "insert":
            return {**head, "fullDocument": document, **place}
        case "update":
            update = {"updateDescription": {**described, "truncatedArrays": []}}
            return {**head, "fullDocument": document, **place, **update, **before}
        case "replace":
            return {**head, "fullDocument": document, **place, **before}
        case "delete":
            return {**head, **place, **before}
        case "read":
            row = {"snapshot": "s", "collection": b"u", "_id": identity}
            del head["wallTime"]
            return {**head, "_id": row, "fullDocument": document, **place}
        case _:
            return {**head, "ns": ORDERS}
