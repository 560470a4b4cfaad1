"""What docs/outcomes.md promises is tested: each row names tests that exist."""

import re

import pytest

from tests.checkout import ROOT

PAGE = (ROOT / "docs/outcomes.md").read_text()
ROWS = [
    line
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| what happens |", "| |"))
]


@pytest.mark.parametrize("row", [row for row in ROWS if row.count("|") == 6], ids=lambda r: r[2:40])
def test_each_outcome_names_its_test(row: str) -> None:
    assert re.findall(r"`(tests/\S+\.py)`", row)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(tests/\S+\.py)`", PAGE))))
def test_the_tests_of_the_page_exist(path: str) -> None:
    assert (ROOT / path).is_file()
