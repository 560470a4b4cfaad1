"""Conversion of BSON events as a user's own client would do it, for comparison."""

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import bson
import orjson
from bson import ObjectId, json_util
from bson.timestamp import Timestamp

Json = Callable[[Any], bytes]
"""Writes a value as relaxed Extended JSON."""


def by_json_util(value: Any) -> bytes:
    """Every type."""
    return json_util.dumps(value, json_options=json_util.RELAXED_JSON_OPTIONS).encode()


def by_orjson(value: Any) -> bytes:
    """Only the types of the source's events."""
    return orjson.dumps(value, default=_extended, option=orjson.OPT_PASSTHROUGH_DATETIME)


CONVERTERS: Mapping[str, Json] = {"json_util": by_json_util, "orjson": by_orjson}


def _extended(value: Any) -> Any:
    if isinstance(value, ObjectId):
        return {"$oid": str(value)}
    if isinstance(value, datetime):
        return {"$date": value.isoformat(timespec="milliseconds") + "Z"}
    if isinstance(value, Timestamp):
        return {"$timestamp": {"t": value.time, "i": value.inc}}
    raise TypeError(type(value))


def native(raw: bytes, to_json: Json) -> tuple[bytes, bytes]:
    """The key and the whole event."""
    event = bson.decode(raw)
    return to_json(event["documentKey"]), to_json(event)


def debezium(raw: bytes, to_json: Json) -> tuple[bytes, bytes]:
    """The key and the message of Debezium's connector for MongoDB."""
    event = bson.decode(raw)
    document, at = event.get("fullDocument"), event["clusterTime"]
    update = event.get("updateDescription")
    value = {
        "before": None,
        "after": None if document is None else to_json(document).decode(),
        "updateDescription": update
        and {
            "removedFields": None,
            "updatedFields": to_json(update["updatedFields"]).decode(),
            "truncatedArrays": None,
        },
        "source": {"connector": "mongodb", "ts_ms": at.time * 1000, "ord": at.inc, **event["ns"]},
        "op": {"insert": "c", "delete": "d"}.get(event["operationType"], "u"),
        "ts_ms": time.time_ns() // 1_000_000,
        "transaction": None,
    }
    identity = to_json(event["documentKey"]["_id"]).decode()
    return orjson.dumps({"id": identity}), orjson.dumps(value)
