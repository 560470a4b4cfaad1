"""The position that the options of ``checkpoints set`` name."""

from typing import Any

import pytest
from bson.timestamp import Timestamp

from tailrace.cli.position_options import read_position
from tailrace.errors import ConfigurationError
from tailrace.model import ResumeToken

NEW = ResumeToken.of({"_data": "82671234560000000746"})


def test_a_token_may_be_given_as_json_or_as_hexadecimal_data() -> None:
    for options in ({"token": '{"_data": "82671234560000000746"}'}, {"token": NEW.to_json()}):
        assert read_position(**options).high_water == NEW
    assert read_position(token_data=" 82671234560000000746\n").high_water == NEW


@pytest.mark.parametrize(
    "text", ["2023-11-14T22:13:20.999Z", "2023-11-15T00:13:20+02:00", "2023-11-14 22:13:20+0000"]
)
def test_a_time_is_rounded_down_to_its_second(text: str) -> None:
    assert read_position(at=text).cluster_time == Timestamp(1_700_000_000, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give exactly one of"),
        ({"token": "{}", "at": "2023-11-14T22:13:20Z"}, "give exactly one of"),
        ({"token_data": "82", "token": ""}, "give exactly one of"),
        ({"at": "2023-11-14T22:13:20"}, "--at: '2023-11-14T22:13:20' has no time zone"),
        ({"at": "yesterday"}, "--at: 'yesterday' is not an ISO 8601 time"),
        ({"at": "1969-12-31T23:59:00Z"}, "--at: .* not a time that MongoDB can store"),
        ({"at": "2106-02-07T06:28:16Z"}, "--at: .* not a time that MongoDB can store"),
        ({"at": "0001-01-01T00:00:00+10:00"}, "--at: .* not a time that MongoDB can store"),
        ({"at": "2023-11-14T22:13:20Z", "after_invalidate": True}, "--after-invalidate: needs"),
        ({"token_data": ""}, "--token-data: is not hexadecimal"),
        ({"token_data": "826"}, "--token-data: is not hexadecimal"),
        ({"token_data": "82zz"}, "--token-data: is not hexadecimal"),
        ({"token": "8265"}, "--token: .*Give a document"),
        ({"token": "{"}, "--token: "),
        ({"token": '{"_data": {"$oid": "x"}}'}, "--token: "),
        ({"token": "{}"}, "--token: is an empty document"),
    ],
)
def test_options_that_name_no_position_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_position(**options)
