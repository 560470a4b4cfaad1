"""An operator's filter: as it was given, or refused before anything depends on it."""

import bson
import pytest
from bson.datetime_ms import DatetimeMS

from tailrace.snapshot.filter import canonical, filter_of, text_of


@pytest.mark.parametrize(
    "value",
    [
        "9223372036854775808",
        "-9223372036854775809",
        '{"$numberLong": "9223372036854775808"}',
        '"\\ud800"',
        '{"\\udfff": 1}',
        '{"name\\u0000": 1}',
        '{"$regularExpression": {"pattern": "a\\u0000", "options": ""}}',
        '{"$code": "f", "$scope": {"n": 9223372036854775808}}',
    ],
)
def test_a_value_that_bson_cannot_store_is_refused(value: str) -> None:
    """It would be part of a record, and each attempt to read or send it would fail."""
    with pytest.raises(ValueError, match="the filter holds a value that BSON cannot store: "):
        canonical(f'{{"$or": [{{"a": {value}}}]}}')


@pytest.mark.parametrize(
    "text",
    [
        "{odd",
        '{"a": {"$uuid": "zz"}}',
        '{"a": {"$oid": "\\ud800"}}',
        '{"a": {"$timestamp": {"t": 99999999999, "i": 1}}}',
        '{"a": {"$numberLong": "\\ud800"}}',
        '{"a":' * 2000 + "1" + "}" * 2000,
    ],
)
def test_text_that_is_not_extended_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="the filter is not Extended JSON: ") as raised:
        canonical(text)
    str(raised.value).encode()


@pytest.mark.parametrize("ms", [-8_640_000_000_000_000, 0, 253402300800000, 2**63 - 1])
def test_a_date_of_any_year_is_kept(ms: int) -> None:
    date = f'{{"$date": {{"$numberLong": "{ms}"}}}}'
    given = f'{{"at": {{"$gte": {date}}}}}'
    stored = canonical(given)
    found = filter_of(stored)
    assert found is not None
    assert bson.encode(found) == bson.encode({"at": {"$gte": DatetimeMS(ms)}})
    assert text_of(found) == stored == canonical(stored)
