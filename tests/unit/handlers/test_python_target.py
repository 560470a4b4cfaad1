"""Which functions a python handler accepts, and how it calls them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bson.timestamp import Timestamp

from tailrace.config.handlers import PythonHandlerSettings
from tailrace.engine import Handler, Owner
from tailrace.errors import ConfigurationError, InvalidPosition
from tailrace.event import ChangeEvent
from tailrace.handlers import check_targets
from tailrace.handlers.python import python_handler
from tailrace.model import ResumeToken, SinkPosition
from tests.unit.engine.changes import change
from tests.unit.handlers import targets

EVENT = ChangeEvent.from_document(change(1))


@pytest.fixture(autouse=True)
def calls() -> Iterator[None]:
    targets.CALLS.clear()
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def settings(target: str, **fields: int) -> PythonHandlerSettings:
    if ":" not in target:
        target = f"tests.unit.handlers.targets:{target}"
    return PythonHandlerSettings.model_validate({"type": "python", "target": target} | fields)


def handler(target: str, **fields: int) -> Handler:
    return python_handler("mine", settings(target, **fields), lanes=64)


def refusal(target: str) -> str:
    with pytest.raises(ConfigurationError) as refused:
        handler(target)
    (problem,) = refused.value.problems
    assert problem.path == "handlers.mine.target"
    assert "Traceback" not in problem.message
    assert "\n" not in problem.message
    return problem.message


ONE = ("one", "unannotated", "an_optional_event", "for_checkers_only", "writer.write")
SEVERAL = (
    *("a_sequence", "a_union", "an_optional_list", "unannotated_events"),
    *("a_sequence_for_checkers_only", "writer"),
)
BYTES = ("bytes_of_several", "perhaps_bytes_of_several", "bytes_beside_what_nobody_can_read")


@pytest.mark.parametrize("target", [*ONE, *SEVERAL, *BYTES])
async def test_the_annotation_selects_what_a_call_gets(target: str) -> None:
    found = handler(target)
    assert (found.on_event is not None) is (target in ONE)
    assert found.raw is (target in BYTES)
    await found.call(EVENT if target in ONE else found.payload([EVENT]))
    several = [EVENT.raw] if target in BYTES else [EVENT]
    assert [EVENT if target in ONE else several] == targets.CALLS


@pytest.mark.parametrize(("target", "where"), [("with_defaults", "here"), ("bound", "there")])
async def test_other_parameters_may_have_values_of_their_own(target: str, where: str) -> None:
    found = handler(target)
    assert found.on_event is not None
    await found.on_event(EVENT)
    (call,) = targets.CALLS
    assert call == (EVENT, where, {})


def test_sizes_are_the_settings() -> None:
    assert handler("one").concurrency == 64  # the lanes
    assert handler("one", concurrency=3).concurrency == 3
    assert handler("a_sequence", batch_size=7).batch_size == 7


@pytest.mark.parametrize("target", ["synchronous", "nothing", "Writer", "CALLS"])
def test_what_is_no_coroutine_function_is_refused(target: str) -> None:
    assert refusal(target).endswith("is no coroutine function: write 'async def'")


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


class TestWorkingDirectory:
    @pytest.fixture(autouse=True)
    def here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        return tmp_path

    async def test_is_where_modules_are_looked_for(self, here: Path) -> None:
        (here / "beside_the_file.py").write_text("async def handle(event): return 1\n")
        found = handler("beside_the_file:handle")
        assert found.on_event is not None
        assert await found.on_event(EVENT) == 1

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
    def test_module_that_fails_when_it_is_imported_is_refused(
        self, here: Path, text: str, words: str
    ) -> None:
        (here / "that_fails.py").write_text(text)
        assert words in refusal("that_fails:handle")


def test_every_bad_target_is_told_at_once() -> None:
    problems = check_targets(
        {"a": settings("synchronous"), "b": settings("one"), "c": settings("no_such")}
    )
    assert [problem.path for problem in problems] == ["handlers.a.target", "handlers.c.target"]


@pytest.mark.parametrize(
    ("target", "given"),
    [("with_scope_and_epoch", ("orders", 7)), ("with_epoch", (7,)), ("with_scope", ("orders",))],
)
async def test_the_scope_and_the_epoch_of_its_owner_are_given(
    target: str, given: tuple[str | int, ...]
) -> None:
    one = handler(target).of_scope(Owner("orders", "", "", 7))
    await one.call(EVENT)
    (call,) = targets.CALLS
    assert call == (EVENT, *given)


async def test_a_second_parameter_called_scope_is_given() -> None:
    found = handler("with_scope")
    assert found.takes_scope
    assert not handler("one").takes_scope
    assert found.on_event is not None
    await found.on_event(EVENT, "orders")
    assert targets.CALLS == [(EVENT, "orders")]


OWNER = Owner("orders", "rs0/1", "f", 1)


class TestItsOwnPosition:
    async def test_is_asked_by_the_scopes_name(self) -> None:
        found = handler("table", batch_size=7)
        assert found.position is not None
        assert (found.batch_size, found.takes_scope) == (7, True)
        at = Timestamp(5, 1)
        for said, meant in (
            (None, None),
            ({"_data": "82"}, SinkPosition(ResumeToken.of({"_data": "82"}))),
            (SinkPosition({"_data": "82"}, at), SinkPosition({"_data": "82"}, at)),
        ):
            targets.table.stands = said
            assert await found.position(OWNER) == meant

    async def test_of_another_type_is_told(self) -> None:
        found = handler("table")
        assert found.position is not None
        targets.table.stands = "82"
        with pytest.raises(InvalidPosition):
            await found.position(OWNER)

    async def test_behind_single_events_means_one_after_another(self) -> None:
        found = handler("row")
        assert found.on_event is None
        assert found.on_events is not None
        assert found.batch_size == 1
        await found.on_events([EVENT, EVENT])
        assert targets.CALLS == [EVENT, EVENT]

    @pytest.mark.parametrize("target", ["forgetful", "distracted"])
    def test_must_be_a_coroutine_method_of_the_scope(self, target: str) -> None:
        assert "a position, which must be a coroutine method of one argument" in refusal(target)
