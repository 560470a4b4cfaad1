"""Values of every BSON type for columns of every type, and which of them fit."""

import json
from decimal import Decimal
from typing import Any

from bson import Binary, DatetimeMS, Decimal128, Int64, MaxKey, MinKey, ObjectId, json_util

KINDS = ("string", "long", "double", "boolean", "timestamp", "decimal", "objectId", "json")
COLUMNS: dict[str, Any] = {
    **{f"{kind}.of_it": kind for kind in KINDS},
    "long.of_it": {"type": "long", "path": "long.of it"},
    "deep.er.still": "long",
}
PATHS = {name: name if isinstance(of, str) else of["path"] for name, of in COLUMNS.items()}
TYPES = {name: of if isinstance(of, str) else of["type"] for name, of in COLUMNS.items()}
ABSENT = object()

VALUES: list[Any] = [
    ABSENT, None, "", "text", "5", 'ä\u2028\0"\\ {"$numberInt":"5"}', True, False, {}, [], [1],
    {"b": [1, "é"], "a": {"x": None}}, [{"id": ObjectId("5" * 24)}, "t"],
    *(0, 5, -1, 2**31 - 1, Int64(0), Int64(2**53), Int64(2**53 + 1), Int64(2**63 - 1)),
    *(Int64(-(2**63)), 0.0, -0.0, 3.0, 2.5, 0.1, 0.12345678901234567, 1e22, 1e300, 5e-324),
    *(float("nan"), float("inf"), float("-inf")),
    *(DatetimeMS(at) for at in (0, 1000, -1, -62135596800000, -62135596800001)),
    *(DatetimeMS(at) for at in (253402300799999, 253402300800000, 2**62, -(2**62))),
    *(Decimal128(text) for text in ("7.10", "0", "-0E-6176", "1E+3", "1.234567890123E+20")),
    *(Decimal128(text) for text in ("1E-7", "1.23E-9", "1.50E+6000", "NaN", "Infinity")),
    *(Decimal128(text) for text in ("0.12345678901", "0.123456789010", "9" * 28 + ".5")),
    *(Decimal128(text) for text in ("9" * 29, "-" + "9" * 34)),
    *(Binary(b"\0", 0), ObjectId("5f5e0f0f0f0f0f0f0f0f0f0f"), MinKey(), MaxKey()),
]  # fmt: skip


def fitting(value: Any, kind: str) -> Any:
    """The value as a column of this type has it; :data:`ABSENT` if it does not fit."""
    match kind, value:
        case ("string", str()) | ("boolean", bool()):
            return value
        case ("long" | "double", bool()):
            return ABSENT
        case "long", int():
            return int(value)
        case "double", float():
            return value
        case "double", int() if -(2**63) <= int(float(value)) < 2**63 and float(value) == value:
            return float(value)
        case "timestamp", DatetimeMS() if -62135596800000 <= int(value) <= 253402300799999:
            return int(value)
        case "decimal", Decimal128():
            return decimal(value.to_decimal())
        case "objectId", ObjectId():
            return str(value)
        case "json", list() | dict():
            text = json_util.dumps({"": value}, json_options=json_util.CANONICAL_JSON_OPTIONS)
            found = json.loads(text)[""]
            return json.dumps(found, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return ABSENT


def decimal(value: Decimal) -> Any:
    if not value.is_finite() or value.copy_abs() >= Decimal(10) ** 28:
        return ABSENT
    digits = str(value).partition("E-")
    behind = len(digits[0].partition(".")[2].rstrip("0")) + int(digits[2] or 0)
    return ABSENT if "E+" not in str(value) and behind > 10 else value


def same(one: Any, other: Any) -> bool:
    return one == other or (one != one and other != other)  # equal, or both NaN


def document_of(values: list[Any]) -> dict[str, Any]:
    """A document with these values at :data:`PATHS`."""
    made: dict[str, Any] = {}
    for path, value in zip(PATHS.values(), values, strict=True):
        *parents, name = path.split(".")
        inside = made
        for parent in parents:
            inside = inside.setdefault(parent, {})
        if value is not ABSENT:
            inside[name] = value
    return made
