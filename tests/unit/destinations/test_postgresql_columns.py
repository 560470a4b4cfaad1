"""Which values fit the declared columns of PostgreSQL, and what is sent for them."""

from datetime import UTC, datetime
from decimal import Decimal
from math import inf, nan
from typing import Any
from uuid import UUID

import bson
import pytest
from bson import Binary, Decimal128, Int64, ObjectId, Regex

from tailrace.destinations.postgresql.column_types import column
from tailrace.destinations.postgresql.names import identifier
from tailrace.destinations.postgresql.nul import without_nul
from tailrace.destinations.postgresql.values import NulRefused, Values
from tailrace.event.bson import encoded

ID = ObjectId("65a0b0c00000000000000001")
UUID4 = UUID("12345678-1234-4234-8234-123456789012")
FAR = bson.DatetimeMS(9_224_318_016_000_000)

FITS: list[tuple[str, Any, Any]] = [
    ("text", "a", "a"),
    ("text", ID, str(ID)),
    ("text", Binary.from_uuid(UUID4), str(UUID4)),
    ("boolean", False, False),
    ("smallint", -32768, -32768),
    ("integer", 7.0, 7),
    ("bigint", Int64(2**63 - 1), 2**63 - 1),
    ("bigint", Decimal128("1E+3"), 1000),
    ("bigint", 2.0**62, 2**62),
    ("bigint", -(2.0**63), -(2**63)),
    ("numeric", 2.0**62, Decimal(2**62)),
    ("numeric(20,1)", 2.0**53 + 2, Decimal(2**53 + 2)),
    ("numeric", 0.1, Decimal("0.1")),
    ("numeric", Decimal128("1E+6111"), Decimal("1E+6111")),
    ("numeric(4, 2)", 99.994, Decimal("99.994")),
    ("real", 2.0**-149, 2.0**-149),
    ("double precision", inf, inf),
    ("double precision", Decimal128("0.5"), 0.5),
    ("timestamptz", datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), -1000),
    ("timestamptz", bson.DatetimeMS(FAR._value - 1), FAR._value - 1),
    ("uuid", str(UUID4), UUID4),
    ("bytea", b"\0\1", b"\0\1"),
    ("bytea", Binary(b"ab", 2), b"ab"),
    ("jsonb", [1, {"a": None}], '[1,{"a":null}]'),
]
MISFITS: list[tuple[str, Any]] = [
    ("text", 5),
    ("text", Regex("a")),
    ("boolean", 1),
    ("smallint", 32768),
    ("integer", 2.5),
    ("integer", inf),
    ("integer", nan),
    ("bigint", 2.0**63),
    ("bigint", "7"),
    ("numeric", inf),
    ("numeric", Decimal128("-Infinity")),
    ("numeric", "7"),
    ("numeric(4,2)", 99.995),
    ("numeric(4)", Decimal128("1E+6111")),
    ("real", 1e39),
    ("real", 1e-46),
    ("double precision", Decimal128("1E+400")),
    ("timestamptz", FAR),
    ("timestamptz", bson.DatetimeMS(-210_866_803_200_001)),
    ("timestamptz", "2026-01-01"),
    ("uuid", "x" * 36),
    ("uuid", "12345678_1234-4234-8234-123456789012"),
    ("uuid", "1234567812344234-8234-123456789-0-12"),
    ("bytea", "text"),
]


def read(kind: str, value: Any, *, replace: bool = False) -> tuple[Any, list[str]]:
    raw = bson.encode({"other": 1, "a": {"b": value}})
    (found,), misfits = Values({"a.b": kind}, replace_nul=replace).read(raw)
    return found, misfits


@pytest.mark.parametrize(("kind", "value", "sent"), FITS, ids=str)
def test_a_value_of_the_columns_type_is_sent(kind: str, value: Any, sent: Any) -> None:
    assert read(kind, value) == (sent, [])


@pytest.mark.parametrize(("kind", "value"), MISFITS, ids=str)
def test_a_misfit_is_null_and_told_in_one_line(kind: str, value: Any) -> None:
    found, (misfit,) = read(kind, value)
    assert found is None
    assert misfit.startswith("a.b: ")
    assert misfit.endswith(f" does not fit {column(kind).type}")
    assert len(misfit) < 120


@pytest.mark.parametrize("kind", ["numeric", "double precision", "real"])
@pytest.mark.parametrize("value", [nan, Decimal128("NaN"), Decimal128("sNaN")])
def test_every_nan_is_a_nan(kind: str, value: Any) -> None:
    found, misfits = read(kind, value)
    assert not misfits
    assert found.is_nan() if isinstance(found, Decimal) else found != found


@pytest.mark.parametrize(
    "document", [{}, {"a": None}, {"a": {}}, {"a": {"b": None}}, {"a": 5}, {"a": [{"b": 1}]}]
)
def test_a_column_without_a_value_is_null(document: dict[str, Any]) -> None:
    assert Values({"a.b": "integer"}, replace_nul=False).read(bson.encode(document)) == ([None], [])


def test_columns_may_be_below_each_other_and_below_an_array() -> None:
    values = Values({"a": "jsonb", "a.1.b": "integer"}, replace_nul=False)
    found, _ = values.read(bson.encode({"a": [0, {"b": 2}]}))
    assert found == ['[0,{"b":2}]', 2]


def test_of_fields_with_one_name_a_column_has_the_first_as_the_server_reads_it() -> None:
    """mongod 6.0.5: ``{a: 1, a: 2}`` is found by ``{a: 1}`` and projected as 1, and so below."""
    parts = [bson.encode(part)[4:-1] for part in ({"a": 1}, {"a": 2}, {"b": {"c": 1}}, {"b": {}})]
    raw = encoded(b"".join([*parts, bson.encode({"last": 5})[4:-1]]))
    values = Values({"a": "integer", "b.c": "integer", "last": "integer"}, replace_nul=False)
    assert values.read(raw) == ([1, 1, 5], [])


@pytest.mark.parametrize("kind", ["varchar", "numeric(0)", "numeric(2,3)", "text[]", ""])
def test_another_type_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        column(kind)


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        (rb'"a\u0000b"', rb'"a\ufffdb"'),
        (rb'"\u0000\u0000"', rb'"\ufffd\ufffd"'),
        (rb'"\\\u0000"', rb'"\\\ufffd"'),
        (rb'"\\u0000"', rb'"\\u0000"'),
        (rb'"\u0001"', rb'"\u0001"'),
    ],
)
def test_nul_is_found_where_json_escapes_it(text: bytes, replaced: bytes) -> None:
    assert without_nul(text, replace=True) == replaced
    assert without_nul(text, replace=False) == (text if text == replaced else None)


@pytest.mark.parametrize(("kind", "stored"), [("text", "\ufffd"), ("jsonb", r'"\ufffd"')])
def test_nul_in_a_column_follows_the_policy(kind: str, stored: str) -> None:
    assert read(kind, "\0", replace=True) == (stored, [])
    with pytest.raises(NulRefused, match=r"a\.b"):
        read(kind, "\0")


def test_a_long_name_is_cut_between_characters_and_keeps_apart_from_its_neighbours() -> None:
    names = ["ä" * 31, "ä" * 32, "ä" * 32 + "b", "a" + "ä" * 32]
    cut = [identifier(name) for name in names]
    assert cut[0] == names[0]
    assert len(set(cut)) == len(names)
    assert all(len(name.encode()) <= 63 for name in cut)
