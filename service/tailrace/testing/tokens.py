"""Resume tokens in mongod's key-string layout, so that they sort and their time can be read.

The hex digits of `_data` are: `82` and the cluster time (4 bytes seconds, 4 bytes increment),
the token's version, its kind (`29` a high-water mark, `2C0100` an event), the index within a
transaction, `6E` or `6F` (made by an invalidate), the collection's UUID and the event's key.
Source: src/mongo/db/pipeline/resume_token.h and src/mongo/db/storage/key_string.
"""

import functools
import uuid
from collections.abc import Mapping
from typing import Any

from bson.timestamp import Timestamp

_EVENT = "2B042C0100"
_HIGH_WATER = "2B0429296E1404"


def event_token(
    time: Timestamp, index: int, namespace: str, ordinal: int, *, from_invalidate: bool = False
) -> dict[str, str]:
    """The token of an event: unique by ordinal, sorted by time and then by index."""
    flag = "6F" if from_invalidate else "6E"
    collection = _collection_uuid(namespace)
    key = f"46645F69640064{ordinal:024X}0004"
    return {"_data": f"{_time(time)}{_EVENT}{integer(index)}{flag}5A1004{collection}{key}"}


def high_water_token(time: Timestamp) -> dict[str, str]:
    """The token that sorts before every event of `time`."""
    return {"_data": f"{_time(time)}{_HIGH_WATER}"}


def invalidate_token(source: Mapping[str, Any]) -> dict[str, str]:
    """The token of the invalidate that follows the event with the token `source`."""
    data = str(source.get("_data", source))
    if "6E5A1004" in data:
        return {"_data": data.replace("6E5A1004", "6F5A1004", 1)}
    return {"_data": data + "6F"}  # the tests' own layout, not mongod's


def is_high_water(token: Mapping[str, Any]) -> bool:
    """Whether the token is a well-formed high-water mark."""
    data = token.get("_data")
    return isinstance(data, str) and data[18:] == _HIGH_WATER and token_time(token) is not None


def token_time(token: Mapping[str, Any]) -> Timestamp | None:
    """The cluster time in a token; None if it cannot be read."""
    data = token.get("_data")
    if not isinstance(data, str) or len(data) < 18 or not data.startswith("82"):
        return None
    try:
        return Timestamp(int(data[2:10], 16), int(data[10:18], 16))
    except ValueError:
        return None


@functools.lru_cache(maxsize=64)
def _collection_uuid(namespace: str) -> str:
    return uuid.uuid5(uuid.NAMESPACE_DNS, namespace).hex.upper()


def _time(time: Timestamp) -> str:
    return f"82{time.time:08X}{time.inc:08X}"


def integer(value: int) -> str:
    """A small integer as a key string: more bytes get a higher type, so that hex sorts."""
    if value == 0:
        return "29"
    return f"2B{value << 1:02X}" if value < 1 << 7 else f"2C{value << 1:04X}"
