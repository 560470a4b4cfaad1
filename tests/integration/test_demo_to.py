"""``tailrace demo --to TYPE``: it ends with 0 only if the destination has what the source has."""

import re
from pathlib import Path

import pytest

from tailrace.demo.destinations import NAMES
from tailrace.demo.destinations.target import NATIVE, as_plain, message_differences
from tailrace.demo.workspace import Layout
from tests.integration.test_demo import demo, output
from tests.integration.test_demo_server import running_in

pytestmark = pytest.mark.usefixtures("mongod_program")


@pytest.mark.integration
@pytest.mark.parametrize("name", NAMES)
async def test_the_demo_ends_with_the_proof_that_the_destination_equals_the_source(
    tmp_path: Path, name: str
) -> None:
    """It restarts the service, renames and drops; nothing of it keeps running."""
    directory = tmp_path / "demo"
    async with demo(directory, "--to", name, events=300) as process:
        printed = await output(process)
    assert process.returncode == 0, printed
    assert "The events give exactly the source" in printed
    assert "The contents of" in printed
    assert re.search(r"tailrace verify shop: [1-9]\d+ rows of \w+ compared, 0 differ", printed)
    assert "service restarts  1" in printed
    assert running_in(tmp_path) == []
    assert f'"type": "{name}"' in Layout(directory).config.read_text()


def test_a_message_that_is_missing_or_damaged_is_a_difference() -> None:
    source = {"shop.orders": [b"\x0e\0\0\0\x10_id\0\1\0\0\0\0"]}
    event = (
        b'{"_id":{"_data":"82"},"operationType":"insert","ns":{"db":"shop","coll":"orders"},'
        b'"documentKey":{"_id":{"$numberInt":"1"}},"fullDocument":{"_id":{"$numberInt":"1"}}}'
    )
    assert NATIVE["json"] == "canonical"
    assert message_differences([event], source) == []
    (missing,) = message_differences([], source)
    assert "no such document" in missing
    (damaged,) = message_differences([event[:-1]], source)
    assert "line 1 is not a change event" in damaged


def test_numbers_are_equal_in_any_notation() -> None:
    assert as_plain("[1e300, -0.0, 1E2]") == as_plain(f"[1{'0' * 300}, 0.0, 100]")
    assert as_plain("9007199254740993") != as_plain("9007199254740992")
