"""The contract suite passes the documented destination, and fails one that breaks a promise."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest

from tailrace import Batch
from tailrace.testing import DestinationContract
from tests import added_types
from tests.checkout import ROOT
from tests.handlers_page import TESTING, python_block


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    directory = tmp_path / "packages"
    directory.mkdir()
    monkeypatch.syspath_prepend(directory)
    yield directory
    sys.modules.pop("tailrace_archive", None)


def suite(directory: Path) -> Any:
    """An object of the class ``TestArchive`` of docs/testing.md, with files in the directory."""
    names: dict[str, Any] = {}
    exec(python_block("(DestinationContract)", TESTING), names)
    made = names["TestArchive"]()
    names["TestArchive"]._file.__wrapped__(made, directory)
    return made


FAULTS = "test_it_holds_what_the_source_has_after_every_fault"
REFUSED = "test_a_refused_document_is_set_aside_and_the_others_arrive"
OUTAGE = "test_an_outage_is_waited_out"
CREDENTIALS = "test_refused_credentials_are_an_outage_that_new_ones_end"
PROBE = "test_a_probe_says_what_is_possible_and_leaves_nothing"
DOWN = "test_a_probe_says_that_the_destination_is_down"
SWEEP = "test_a_snapshot_removes_what_is_gone_and_nothing_else"
SECRET = "test_a_secret_is_shown_nowhere"
COMPARISON = "test_a_comparison_tells_the_same_rows_from_others"
ALL = {FAULTS, REFUSED, OUTAGE, CREDENTIALS, PROBE, DOWN, SWEEP, SECRET, COMPARISON}


def test_the_documented_package_keeps_every_promise(packages: Path, tmp_path: Path) -> None:
    added_types.install_documented(packages)
    names = [name for name in dir(DestinationContract) if name.startswith("test_")]
    assert set(names) == ALL
    skipped = []
    for name in names:
        directory = tmp_path / name
        directory.mkdir()
        try:
            getattr(suite(directory), name)()
        except SkipTest:
            skipped.append(name)
    assert skipped == [COMPARISON, CREDENTIALS]


MAKES_A_FILE = """with closing(sqlite3.connect(self._path)) as db, db:
                db.executescript(TABLES)
                db.execute('INSERT INTO documents (document) VALUES (?)', ['{"_id": 1}'])"""

BROKEN = {
    "a delete is ignored": (FAULTS, '== "delete"', '== ""', "still there after its delete"),
    "a drop is ignored": (FAULTS, '== "drop"', '== ""', "a dropped collection"),
    "a refusal is any error": (
        REFUSED,
        "raise Refused(",
        "raise ValueError(",
        "attempts: raise Refused",
    ),
    "a batch is left out": (REFUSED, "raise Refused(refused)", "return", "letters are \\[\\]"),
    "an outage is any error": (OUTAGE, '"sqlite3.OperationalError",', "", "is locked"),
    "a probe makes it": (
        PROBE,
        "with probe_directory(self._path.parent):",
        MAKES_A_FILE,
        "the probe has left",
    ),
    "a probe is silent": (PROBE, 'return f"{self._path} can be c', 'return f"" and f"', "no text"),
    "a probe tries nothing": (DOWN, 'db.execute("BEGIN IMMEDIATE")', "pass", "it is down, and"),
    "nothing is swept": (SWEEP, "db.execute(SWEEP,", "tuple(", "still there"),
    "too much is swept": (SWEEP, "db.executemany(SPARE, spared)", "pass", "dead_letter_keys"),
    "a secret is a text": (SECRET, "key: SecretText", "key: Text", "a secret is shown"),
}


@pytest.mark.parametrize("mistake", BROKEN)
def test_a_broken_promise_fails_its_test(mistake: str, packages: Path, tmp_path: Path) -> None:
    name, right, wrong, said = BROKEN[mistake]
    source = python_block("destination_type")
    assert right in source
    added_types.install(
        packages,
        "tailrace-archive",
        "archive = tailrace_archive:ARCHIVE",
        tailrace_archive=source.replace(right, wrong),
    )
    made = suite(tmp_path)
    made.seconds = 3
    if name == SECRET:
        made.handler["key"] = made.secret
    with pytest.raises(AssertionError, match=said):
        getattr(made, name)()


STORED: dict[str, dict[Any, Any]] = {}


class Rows:
    """A target of ``type: python``: the name of the table is an option."""

    def __init__(self, table: str) -> None:
        self._rows = STORED.setdefault(table, {})

    async def write(self, batch: Batch) -> None:
        for event in batch.latest():
            assert event.document_key is not None
            if event.operation_type == "delete":
                self._rows.pop(event.document_key["_id"], None)
            else:
                self._rows[event.document_key["_id"]] = event.full_document


@pytest.mark.parametrize("name", [FAULTS, PROBE])
def test_it_takes_a_class_with_options_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)

    class Suite(DestinationContract):
        def holds(self) -> Any:
            return STORED.get(name, {})

    made = Suite()
    made.handler = {"type": "python", "target": f"{__name__}:Rows", "options": {"table": name}}
    getattr(made, name)()
