"""The examples in docs/envelopes.md are what the code makes."""

import json
import re

import pytest
from bson import Int64, json_util

from tailrace.envelope import ENVELOPES, messages
from tailrace.event import ChangeEvent
from tests.checkout import ROOT
from tests.scripted.wire import in_order

PAGE = (ROOT / "docs" / "envelopes.md").read_text()
EXAMPLES = dict(re.findall(r"^## `(\w+)`\n.*?^```json\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_an_example_on_the_page_is_what_an_event_becomes(envelope: str) -> None:
    native = json_util.loads(EXAMPLES["native"])
    native["fullDocument"]["total"] = Int64(12)
    event = ChangeEvent(in_order(native))
    value = json.loads(messages([event], "orders", envelope)[0].value or b"")
    example = json.loads(EXAMPLES[envelope])
    if envelope == "debezium":
        del value["ts_ms"], example["ts_ms"]
    assert value == example
