"""Which functions a python handler accepts, and how it calls them."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tailrace.destinations.python import PythonHandlerSettings, check_target
from tailrace.engine import Handler, PerBatch, PerEvent, RunIdentity
from tailrace.errors import ConfigurationError
from tailrace.event import ChangeEvent
from tailrace.handlers import check_handlers
from tailrace.handlers.open_handler import open_handler
from tests.handlers import deliver, opening
from tests.unit.destinations import targets
from tests.unit.engine.changes import change

EVENT = ChangeEvent.from_document(change(1))


@pytest.fixture(autouse=True)
def calls() -> Iterator[None]:
    targets.CALLS.clear()
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def settings(target: str, **fields: Any) -> PythonHandlerSettings:
    if ":" not in target:
        target = f"tests.unit.destinations.targets:{target}"
    return PythonHandlerSettings.model_validate({"type": "python", "target": target} | fields)


@asynccontextmanager
async def opened(target: str, **fields: Any) -> AsyncIterator[Handler]:
    async with open_handler(opening("mine"), settings(target, **fields), waits=True) as handler:
        yield handler


def refusal(target: str) -> str:
    with pytest.raises(ConfigurationError) as refused:
        check_target("mine", settings(target))
    (problem,) = refused.value.problems
    assert problem.path == "handlers.mine.target"
    assert "Traceback" not in problem.message
    assert "\n" not in problem.message
    return problem.message


ONE = ("one", "unannotated", "an_optional_event", "for_checkers_only", "writer.one")
SEVERAL = (
    *("a_sequence", "a_union", "an_optional_list", "unannotated_events"),
    *("a_sequence_for_checkers_only", "writer"),
)
BYTES = ("bytes_of_several", "perhaps_bytes_of_several", "bytes_beside_what_nobody_can_read")


@pytest.mark.parametrize("target", [*ONE, *SEVERAL, *BYTES])
async def test_the_annotation_selects_what_a_call_gets(target: str) -> None:
    async with opened(target) as handler:
        assert isinstance(handler.calls, PerEvent) is (target in ONE)
        await deliver(handler, EVENT)
    several = [EVENT.raw] if target in BYTES else [EVENT]
    assert [EVENT if target in ONE else several] == targets.CALLS


@pytest.mark.parametrize(
    ("target", "given"),
    [
        ("with_defaults", ("here", {})),
        ("bound", ("there", {})),
        ("with_scope_and_epoch", ("orders", 7)),
        ("with_epoch", (7,)),
        ("with_scope", ("orders",)),
    ],
)
async def test_the_scope_the_epoch_of_its_owner_and_values_of_its_own_are_given_to_a_function(
    target: str, given: tuple[Any, ...]
) -> None:
    async with opened(target) as handler:
        await deliver(handler, EVENT, identity=RunIdentity("orders", "", "", 7))
    assert [(EVENT, *given)] == targets.CALLS


@pytest.mark.parametrize(
    ("target", "fields", "concurrency"),
    [
        ("one", {}, 64),
        ("one", {"concurrency": 3}, 3),
        ("a_sequence", {}, 1),
        ("a_sequence", {"concurrency": 5}, 1),
        ("a_sequence", {"order": "key"}, 8),
        ("a_sequence", {"order": "key", "concurrency": 5}, 5),
    ],
)
async def test_concurrency_and_order_by_key_allow_several_calls_at_once(
    target: str, fields: dict[str, Any], concurrency: int
) -> None:
    """Without ``concurrency``, as many single events as there are lanes."""
    async with opened(target, **fields) as handler:
        assert handler.calls.concurrency == concurrency


async def test_batch_size_batch_bytes_and_linger_seconds_bound_a_call_of_a_sequence() -> None:
    bounds = {"batch_size": 7, "batch_bytes": 1024, "linger_seconds": 0.5}
    for target, options in (("a_sequence", {}), ("Storing", {"dsn": "x"})):
        async with opened(target, options=options, **bounds) as handler:
            calls = handler.calls
            assert isinstance(calls, PerBatch)
            assert (calls.events, calls.bytes, calls.linger_seconds) == (7, 1024, 0.5)


@pytest.mark.parametrize(
    ("target", "words"),
    [("one", "gets one event a call"), ("Ready", "has begin: the one position")],
)
def test_order_by_key_is_refused_where_it_does_not_fit(target: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_target("mine", settings(target, order="key"))
    (problem,) = refused.value.problems
    assert problem.path == "handlers.mine.order"
    assert words in problem.message


@pytest.mark.parametrize("target", ["synchronous", "nothing", "CALLS"])
def test_what_is_no_coroutine_function_is_refused(target: str) -> None:
    assert refusal(target).endswith("is not a coroutine function: write 'async def'")


def test_an_async_generator_is_told_what_it_is() -> None:
    assert "is an async generator: take its 'yield' out" in refusal("generator")


@pytest.mark.parametrize(
    "target", ["two", "two_by_name", "by_name", "none", "scope_by_name", "scope_and_more"]
)
def test_what_does_not_take_one_argument_is_refused_with_its_signature(target: str) -> None:
    message = refusal(target)
    assert "must take one argument, the event or the events" in message
    assert f"it is {target}(" in message


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("no_such_package:f", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("tests.unit.handlers.no_such:f", "ModuleNotFoundError: No module named"),
        ("no_such_function", "AttributeError: module"),
        ("writer.no_such_method", "AttributeError: 'Writer' object has no attribute"),
    ],
)
def test_what_cannot_be_imported_is_told_in_one_line(target: str, words: str) -> None:
    message = refusal(target)
    assert f"cannot be imported: {words}" in message
    assert "working directory" in message


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_modules_are_looked_for_in_the_working_directory(here: Path) -> None:
    (here / "beside_the_file.py").write_text("async def handle(event): return 1\n")
    async with opened("beside_the_file:handle") as handler:
        assert await deliver(handler, EVENT) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import no_such_package\n", "No module named 'no_such_package'"),
        ("raise OSError('no key\\nin here')\n", "OSError: no key in here"),
        ("def broken(:\n", "SyntaxError: "),
        ("import sys\nsys.exit('no licence')\n", "SystemExit: no licence"),
        ("raise KeyboardInterrupt\n", "cannot be imported: KeyboardInterrupt. "),
        ("import asyncio\nraise asyncio.CancelledError\n", "CancelledError"),
        ("class Odd(Exception):\n    def __str__(self): return 1 / 0\nraise Odd\n", ": Odd. "),
    ],
)
def test_a_module_that_fails_when_it_is_imported_is_refused(
    here: Path, text: str, words: str
) -> None:
    (here / "that_fails.py").write_text(text)
    assert words in refusal("that_fails:handle")


def test_every_bad_target_is_told_at_once() -> None:
    problems = check_handlers(
        {"a": settings("synchronous"), "b": settings("one"), "c": settings("no_such")}
    )
    assert [problem.path for problem in problems] == ["handlers.a.target", "handlers.c.target"]
