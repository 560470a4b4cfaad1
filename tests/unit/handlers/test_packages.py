"""Types of handlers that other packages add by entry points."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.cli import main
from tailrace.errors import ConfigurationError
from tailrace.handlers import check_handlers
from tailrace.handlers.open_handler import open_handler
from tailrace.handlers.types import BUILT_IN
from tests import added_types
from tests.handlers import opening
from tests.unit.config.files import minimal, parse, problems

Install = Callable[..., None]

ROW = """\
from typing import Literal
from tailrace import BatchHandlerSettings, destination_type
class Settings(BatchHandlerSettings):
    '''Keeps nothing.'''
    type: Literal["{name}"]
class Nothing:
    def __init__(self, opening, settings): pass
    async def {method}(self, batch): pass
ROW = destination_type(Settings, Nothing, needs={needs}, install="pip install it")
"""


def row(name: str = "nothing", method: str = "write", needs: tuple[str, ...] = ()) -> str:
    return ROW.format(name=name, method=method, needs=needs)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def put(package: str, *types: str, **modules: str) -> None:
        added_types.install(tmp_path, package, *types, **modules)

    yield put
    for name in set(sys.modules) - before:
        del sys.modules[name]


def used(word: str, **more: Any) -> dict[str, Any]:
    return minimal(handler={"type": word, **more})


async def test_the_package_of_the_page_is_a_type_like_any_other(
    tmp_path: Path, install: Install
) -> None:
    """What it does is in tests/unit/testing/test_destination_contract.py."""
    added_types.install_documented(tmp_path)
    path = str(tmp_path / "archive.db")
    handlers = parse(used("archive", path=path, key="secret", retry={"attempts": 7})).handlers
    assert check_handlers(handlers) == []
    async with open_handler(opening("mine"), handlers["mine"]) as opened:
        assert opened.failure.attempts == 7
        assert opened.position is not None


def test_its_keys_are_checked_with_their_paths_like_any_others(
    tmp_path: Path, install: Install
) -> None:
    added_types.install_documented(tmp_path)
    found = problems(used("archive", pth="x", key="secret"))
    assert found["handlers.mine.path"].startswith("is required: The file")
    assert "did you mean 'path'?" in found["handlers.mine.pth"]


def test_a_mistyped_type_is_compared_with_those_of_all_packages(
    tmp_path: Path, install: Install
) -> None:
    added_types.install_documented(tmp_path)
    message = problems(used("archiv"))["handlers.mine.type"]
    assert message.startswith("must be log, jsonl, parquet, ")
    assert message.endswith(", python or archive, not 'archiv'; did you mean 'archive'?")


BROKEN = {
    "no module": ("broken = nowhere_at_all:ROW", "", "No module named 'nowhere_at_all'"),
    "no such row": ("broken = m:RAW", row("broken"), "AttributeError: module 'm' has no attribute"),
    "raises": ("broken = m:ROW", "raise OSError('no licence')", "OSError: no licence"),
    "exits": ("broken = m:ROW", "import sys; sys.exit('bye')", "SystemExit: bye"),
    "no row": ("broken = m:ROW", "ROW = 5", "m:ROW is not made by tailrace.destination_type"),
    "other name": ("broken = m:ROW", row("other"), "its settings are those of type 'other'"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_an_entry_point_that_cannot_be_loaded_is_one_line_with_key_package_and_cause(
    install: Install, case: str
) -> None:
    entry, source, expected = BROKEN[case]
    install("broken-package", entry, m=source)
    found = problems(used("broken"))
    assert list(found) == ["handlers.mine.type"]
    message = found["handlers.mine.type"]
    assert "'broken' of the package broken-package 1.0 cannot be loaded: " in message
    assert expected in message
    assert "\n" not in message


def test_two_packages_with_the_same_type_are_told(install: Install) -> None:
    install("first", "nothing = m:ROW", m=row())
    install("second", "nothing = m:ROW")
    message = problems(used("nothing"))["handlers.mine.type"]
    assert "both add the type 'nothing': uninstall one of them" in message
    assert "first 1.0" in message
    assert "second 1.0" in message


def test_a_broken_type_that_is_not_used_stops_nothing(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("broken-package", "broken = nowhere_at_all:ROW", "log = m:ROW", m=row())
    parse(minimal())
    assert main(["handlers"]) == 0
    shown = capsys.readouterr()
    assert [line.split()[0] for line in shown.out.splitlines()] == [
        "TYPE",
        *BUILT_IN,
    ]
    broken, taken = shown.err.splitlines()
    assert broken.startswith("tailrace: warning: the type 'broken' of the package broken-package")
    assert taken.endswith("adds a type 'log', which Tailrace has itself: it is not used")


def test_what_a_type_needs_is_listed_and_told_where_it_is_used(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("tailrace-nothing", "nothing = m:ROW", m=row(needs=("json", "no_such_client")))
    (problem,) = check_handlers(parse(used("nothing")).handlers)
    message = "nothing needs no_such_client, not installed here: pip install it"
    assert str(problem) == f"handlers.mine.type: {message}"
    assert main(["handlers", "--json"]) == 0
    listed = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert listed["jsonl"]["installed"]
    assert listed["nothing"] == {
        "name": "nothing",
        "package": "tailrace-nothing 1.0",
        "summary": "Keeps nothing",
        "needs": ["json", "no_such_client"],
        "missing": ["no_such_client"],
        "install": "pip install it",
        "broken": "",
        "installed": False,
    }


async def test_a_class_that_cannot_be_used_is_refused_with_the_handlers_key(
    install: Install,
) -> None:
    install("tailrace-nothing", "nothing = m:ROW", m=row(method="put"))
    (problem,) = check_handlers(parse(used("nothing")).handlers)
    assert problem.path == "handlers.mine.type"
    assert "'Nothing' is a class without a coroutine method write(batch)" in problem.message


async def test_a_class_that_cannot_be_created_refuses_the_start(install: Install) -> None:
    source = row().replace("settings): pass", "settings): raise OSError('no licence')")
    install("tailrace-nothing", "nothing = m:ROW", m=source)
    with pytest.raises(ConfigurationError, match="Nothing cannot be created: OSError: no licence"):
        async with open_handler(opening("mine"), parse(used("nothing")).handlers["mine"]):
            pass


async def test_an_object_that_cannot_be_opened_refuses_the_start_in_one_line(
    install: Install,
) -> None:
    source = row().replace(
        "ROW = ",
        "async def opened(self):\n"
        "    raise OSError('no licence')\n"
        "Nothing.__aenter__, Nothing.__aexit__ = opened, opened\n"
        "ROW = ",
    )
    install("tailrace-nothing", "nothing = m:ROW", m=source)
    message = "handlers.mine: Nothing cannot be opened: OSError: no licence"
    with pytest.raises(ConfigurationError, match=message):
        async with open_handler(opening("mine"), parse(used("nothing")).handlers["mine"]):
            pass


LATE = """\
from typing import Literal
from tailrace.destination import {base}, destination_type
class Settings({base}):
    '''Stores late.'''
    type: Literal["late"]
class Late:
    def __init__(self, opening, settings): pass
    async def write(self, batch): pass
    async def commit(self, scope): pass
    async def rollback(self, scope): pass
ROW = destination_type(Settings, Late{more})
"""


async def test_a_class_with_commit_has_the_keys_of_a_late_commit(install: Install) -> None:
    source = LATE.format(base="CommitHandlerSettings", more="")
    install("tailrace-late", "late = m:ROW", m=source)
    handlers = parse(used("late", commit_events=7)).handlers
    assert check_handlers(handlers) == []
    async with open_handler(opening("mine"), handlers["mine"]) as opened:
        assert opened.commit is not None
        assert (opened.commit.events, opened.commit.seconds) == (7, 5.0)


@pytest.mark.parametrize(
    ("base", "more", "said"),
    [
        ("BatchHandlerSettings", "", "has commit: let its settings derive from Commit"),
        ("CommitHandlerSettings", ", concurrency=lambda settings: 2", "cannot cover several calls"),
    ],
)
async def test_a_class_that_does_not_fit_its_type_is_refused(
    install: Install, base: str, more: str, said: str
) -> None:
    install("tailrace-late", "late = m:ROW", m=LATE.format(base=base, more=more))
    (problem,) = check_handlers(parse(used("late")).handlers)
    assert problem.path == "handlers.mine.type"
    assert said in problem.message
