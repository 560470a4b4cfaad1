"""The types of columns: which values of BSON fit, and what is sent for them.

A column has the type that the configuration declares, or one of the values that come first
(``columns: auto``). ``text`` also takes ObjectIds (24 digits) and UUIDs, and numbers fit every type
of number that holds their exact value (``numeric``, ``real`` and ``double precision`` round).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Annotated, Any
from uuid import UUID

from bson.decimal128 import Decimal128
from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from tailrace.event import bson
from tailrace.event.bson import FLOAT64, INT32, INT64, string_at
from tailrace.event.extended_json import RELAXED

FIRST_MS, LAST_MS = -210_866_803_200_000, 9_224_318_015_999_999
"""The milliseconds since 1970 that ``timestamptz`` can hold: 4713 BC to the year 294276.

https://www.postgresql.org/docs/current/datatype-datetime.html
"""

AUTO = "auto"
"""In the place of a type: columns appear by themselves."""

_NUMERIC = re.compile(r"(?:numeric|decimal)(?:\((\d{1,4})(?:,(\d{1,4}))?\))?")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_CONTEXT = Context(prec=1100, rounding=ROUND_HALF_UP, Emax=999_999, Emin=-999_999)
_RESERVED = frozenset({"key", "document", "cluster_time", "deleted_at"})
_SYSTEM = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid", "oid"})


class Misfit(Exception):
    """A value does not fit the type of its column; the message says what it is."""


Reader = Callable[[int, bytes, int, int], Any]
"""What is sent for a value: gets its type, the bytes, start and end. Raises :class:`Misfit`."""


@dataclass(frozen=True, slots=True)
class Column:
    """A type as PostgreSQL shows it (``format_type``), and how its values get there.

    ``sent``: the type of the sent array's elements; ``made``: SQL that makes the value of ``{}``.
    """

    type: str
    read: Reader
    sent: str
    made: str = "{}"


def column_name(path: str) -> str:
    """The name of the column of a path. Raises ``ValueError`` if it cannot be one."""
    name = path.replace(".", "_")
    if name in _RESERVED or name in _SYSTEM or name.startswith("tailrace_"):
        raise ValueError(f"columns: {path} would be the column {name!r}, which has another meaning")
    if len(name.encode()) > 63:
        raise ValueError(f"columns: the column {name!r} would have more than 63 bytes")
    return name


def column(declared: str) -> Column:
    """The column of a declared type. Raises ``ValueError`` for a type that is not known."""
    word = " ".join(declared.lower().split()).replace(" (", "(").replace(", ", ",")
    if word in _TYPES:
        return _TYPES[word]
    if found := _NUMERIC.fullmatch(word):
        return _numeric(*(int(number) for number in found.groups() if number is not None))
    raise ValueError(f"must be one of {', '.join(NAMES)}, numeric(p), numeric(p,s)")


def _declared(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be one of {', '.join(NAMES)}, numeric(p), numeric(p,s)")
    if value != AUTO:
        column(str(value))
    return str(value)


ColumnType = Annotated[
    str,
    PlainValidator(_declared),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "examples": ["text", "numeric", "timestamptz"]}),
]


def _text(kind: int, raw: bytes, at: int, end: int) -> str:
    if kind in (bson.STRING, bson.SYMBOL):
        return string_at(raw, at)
    if kind == bson.OBJECT_ID:
        return raw[at:end].hex()
    if kind == bson.BINARY and raw[at + 4] == 4 and end - at == 21:
        return str(UUID(bytes=raw[at + 5 : end]))
    raise Misfit(_called(kind))


def _boolean(kind: int, raw: bytes, at: int, end: int) -> bool:
    if kind != bson.BOOLEAN:
        raise Misfit(_called(kind))
    return raw[at] == 1


def _integer(bits: int) -> Reader:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def read(kind: int, raw: bytes, at: int, end: int) -> int:
        if kind == bson.INT32_TYPE:
            number: int | Decimal = INT32(raw, at)[0]
        elif kind == bson.INT64_TYPE:
            number = INT64(raw, at)[0]
        else:
            number = _decimal(kind, raw, at, end)
        if not _is_finite(number) or not least <= number <= most or number != int(number):
            raise Misfit(f"the number {number!s:.40}")
        return int(number)

    return read


def _is_finite(number: int | Decimal) -> bool:
    return isinstance(number, int) or number.is_finite()


def _decimal(kind: int, raw: bytes, at: int, end: int) -> Decimal:
    if kind == bson.INT32_TYPE:
        return Decimal(INT32(raw, at)[0])
    if kind == bson.INT64_TYPE:
        return Decimal(INT64(raw, at)[0])
    if kind == bson.DOUBLE:
        double = FLOAT64(raw, at)[0]
        # An integral value exactly, another one with the fewest digits that are the same double.
        return Decimal(double if double.is_integer() else repr(double))
    if kind == bson.DECIMAL:
        number = Decimal128.from_bid(raw[at:end]).to_decimal()
        return Decimal("NaN") if number.is_nan() else number
    raise Misfit(_called(kind))


def _numeric(precision: int | None = None, scale: int = 0) -> Column:
    """``numeric``. NaN fits; infinities do not, because PostgreSQL 13 does not know them."""
    if precision is not None and not (1 <= precision <= 1000 and scale <= precision):
        raise ValueError("must be numeric(p,s) with p from 1 to 1000 and s up to p")
    unit, limit = Decimal(1).scaleb(-scale), Decimal(10) ** ((precision or 0) - scale)

    def read(kind: int, raw: bytes, at: int, end: int) -> Decimal:
        number = _decimal(kind, raw, at, end)
        if number.is_infinite():
            raise Misfit("an infinite number")
        if precision is None or number.is_nan():
            return number
        try:
            fits = abs(_CONTEXT.quantize(number, unit)) < limit
        except InvalidOperation:
            fits = False
        if not fits:
            raise Misfit(f"the number {number!s:.40}")
        return number

    name = "numeric" if precision is None else f"numeric({precision},{scale})"
    return Column(name, read, "numeric", "{}" if precision is None else f"{{}}::{name}")


def _double(kind: int, raw: bytes, at: int, end: int) -> float:
    if kind == bson.DOUBLE:
        number: float = FLOAT64(raw, at)[0]
        return number
    exact = _decimal(kind, raw, at, end)
    number = float(exact)
    if number in (float("inf"), float("-inf")) and not exact.is_infinite():
        raise Misfit(f"the number {exact!s:.40}")
    return number


def _real(kind: int, raw: bytes, at: int, end: int) -> float:
    number = _double(kind, raw, at, end)
    size = abs(number)
    # PostgreSQL refuses what would become infinite or zero.
    finite = size - size == 0.0
    if size and finite and not 2**-149 <= size < 2**128 * (1 - 2**-25):
        raise Misfit(f"the number {number!r}")
    return number


def _moment(kind: int, raw: bytes, at: int, end: int) -> int:
    if kind != bson.DATE:
        raise Misfit(_called(kind))
    ms: int = INT64(raw, at)[0]
    if not FIRST_MS <= ms <= LAST_MS:
        raise Misfit("a date outside the years of timestamptz")
    return ms


def _uuid(kind: int, raw: bytes, at: int, end: int) -> UUID:
    if kind == bson.BINARY and raw[at + 4] == 4 and end - at == 21:
        return UUID(bytes=raw[at + 5 : end])
    if kind == bson.STRING and _UUID.fullmatch(text := string_at(raw, at)):
        return UUID(text)
    raise Misfit(_called(kind))


def _bytes(kind: int, raw: bytes, at: int, end: int) -> bytes:
    if kind != bson.BINARY:
        raise Misfit(_called(kind))
    return raw[at + (9 if raw[at + 4] == 2 else 5) : end]


def _json(kind: int, raw: bytes, at: int, end: int) -> str:
    return RELAXED[kind](raw, at, end, RELAXED)


_MOMENT = (
    "timestamptz '2000-01-01 00:00Z' + (({0} - 946684800000) / 86400000) * interval '24 hours' "
    "+ (({0} - 946684800000) %% 86400000) * interval '1 millisecond'"
)
"""Both products are exact (an interval is multiplied by a double), and in the range of an interval:
PostgreSQL counts from 2000, too."""

_TYPES: Mapping[str, Column] = {
    word: made
    for words, made in (
        ("text", Column("text", _text, "text")),
        ("boolean bool", Column("boolean", _boolean, "boolean")),
        ("smallint int2", Column("smallint", _integer(16), "int8", "{}::smallint")),
        ("integer int int4", Column("integer", _integer(32), "int8", "{}::integer")),
        ("bigint int8", Column("bigint", _integer(64), "int8")),
        ("numeric decimal", _numeric()),
        ("real float4", Column("real", _real, "float8", "{}::real")),
        ("float8 double", Column("double precision", _double, "float8")),
        ("timestamptz", Column("timestamp with time zone", _moment, "int8", _MOMENT)),
        ("uuid", Column("uuid", _uuid, "uuid")),
        ("bytea", Column("bytea", _bytes, "bytea")),
        ("jsonb", Column("jsonb", _json, "text", "{}::jsonb")),
    )
    for word in words.split()
}
_TYPES = {
    **_TYPES,
    "double precision": _TYPES["float8"],
    "timestamp with time zone": _TYPES["timestamptz"],
}
NAMES = (
    *("text", "boolean", "smallint", "integer", "bigint", "numeric", "real", "double precision"),
    *("timestamptz", "uuid", "bytea", "jsonb"),
)
"""The types as the documentation writes them."""


def _called(kind: int) -> str:
    return _CALLED.get(kind, "a value of another type")


_CALLED = {
    bson.DOUBLE: "a number",
    bson.INT32_TYPE: "a number",
    bson.INT64_TYPE: "a number",
    bson.DECIMAL: "a number",
    bson.STRING: "a string",
    bson.DOCUMENT: "a document",
    bson.ARRAY: "an array",
    bson.BINARY: "binary data",
    bson.OBJECT_ID: "an ObjectId",
    bson.BOOLEAN: "a boolean",
    bson.DATE: "a date",
    bson.TIMESTAMP: "a timestamp",
}
