"""Classes as targets: their options, what opens and closes them, and what their methods get."""

from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from tailrace.destination import keeper
from tailrace.engine import RunIdentity
from tailrace.errors import ConfigurationError, InvalidPosition
from tailrace.event import ChangeEvent
from tailrace.handlers import check_handlers
from tests.handlers import OWNER, begin, commit, deliver
from tests.unit.destinations import targets
from tests.unit.destinations.conftest import Check
from tests.unit.destinations.test_python_target import calls, opened, refusal, settings
from tests.unit.engine.changes import change, ddl

__all__ = ["calls"]

EVENT = ChangeEvent.from_document(change(1))


@pytest.mark.parametrize(
    ("target", "called"),
    [
        ("Storing", (("x", "orders", 3), [EVENT], "orders", None, None)),
        ("WithModel", (("x", 3), EVENT)),
    ],
    ids=["arguments", "one pydantic model"],
)
async def test_options_are_what_the_constructor_takes(target: str, called: Any) -> None:
    async with opened(target, options={"dsn": "x", "size": 3}) as handler:
        await deliver(handler, EVENT)
    assert [called] == targets.CALLS


async def test_options_may_have_any_name() -> None:
    names = ("path", "kind", "name", "opening", "settings")
    async with opened("OddOptions", options={name: name for name in names}) as handler:
        await deliver(handler, EVENT)
    assert targets.CALLS[0][0] == names


@pytest.mark.parametrize(
    ("target", "options", "path", "message"),
    [
        ("Storing", {}, "options.dsn", "is required by Storing"),
        ("Storing", {"dsn": "x", "tabel": "t"}, "options.tabel", "did you mean 'table'?"),
        ("Storing", {"dsn": "x", "other": 1}, "options.other", "it takes dsn, table, size"),
        ("Storing", {"dsn": "x", "size": "many"}, "options.size", "should be a valid integer"),
        ("WithModel", {"size": 1}, "options.dsn", "is required by WithModel"),
        ("WithModel", {"dsn": 5}, "options.dsn", "does not fit WithModel: input should be a valid"),
        ("Plain", {"dsn": "x"}, "options.dsn", "it takes none"),
        ("one", {"dsn": "x"}, "options", "takes no options: only a class does"),
        ("writer", {"dsn": "x"}, "options", "takes no options: only a class does"),
    ],
)
def test_options_that_do_not_fit_are_refused_with_their_path_and_never_their_value(
    target: str, options: dict[str, Any], path: str, message: str
) -> None:
    (problem,) = check_handlers({"table": settings(target, options=options)})
    assert problem.path == f"handlers.table.{path}"
    assert message in problem.message
    assert "many" not in problem.message


@pytest.mark.parametrize(
    ("target", "mistake", "line"),
    [
        ("no_such", "target: 'tests.unit.destinations.targets:no_such' cannot be imported: ", 7),
        ("Storing", "options.dsn: is required by Storing", 8),
    ],
)
def test_check_reports_a_mistake_in_one_line_with_that_of_the_file(
    target: str, mistake: str, line: int, check: Check
) -> None:
    given = f"type: python\ntarget: tests.unit.destinations.targets:{target}\noptions:\n  {{}}"
    found = check(given).mistake
    assert found.startswith(f"handlers.mine.{mistake}")
    assert found.endswith(f" (line {line})")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("NeitherWay", "is a class without a coroutine method write(batch) or __call__(event)"),
        ("BothWays", "has both write and __call__: keep one of them"),
        ("both_ways", "has both write and __call__: keep one of them"),
        ("Synchronous", "has a write that is not a coroutine method"),
        ("WithoutBatch", "has a write that does not take one argument, the batch"),
        ("ComparisonIsCoroutine", "has a comparison that is a coroutine"),
        ("HalfOpen", "has only one of __aenter__ and __aexit__"),
    ],
)
def test_a_class_that_cannot_be_used_is_refused_in_one_line(target: str, message: str) -> None:
    assert message in refusal(target)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("FailsToBegin", "FailsToBegin cannot be created: RuntimeError: no licence"),
        ("FailsToOpen", "FailsToOpen cannot be opened: RuntimeError: no licence"),
    ],
)
async def test_an_object_that_cannot_be_created_or_opened_refuses_the_start(
    target: str, message: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        async with opened(target):
            pass
    (problem,) = refused.value.problems
    assert message in problem.message


async def test_an_object_is_opened_once_and_closed_at_the_end() -> None:
    async with opened("Plain") as handler:
        await deliver(handler, EVENT)
    assert targets.CALLS == ["opened", ["insert"], "closed"]


async def test_an_object_that_cannot_be_closed_is_reported_and_does_no_harm() -> None:
    with capture_logs() as logs:
        async with opened("FailsToClose"):
            pass
    assert [(log["event"], log["handler"]) for log in logs] == [("handler.close_failed", "mine")]


async def test_an_object_may_hold_a_task_group_while_it_is_open() -> None:
    with capture_logs() as logs:
        async with opened("HoldsTasks") as handler:
            await deliver(handler, EVENT)
    assert logs == []
    assert targets.CALLS == [["insert"], "closed"]


async def test_an_object_that_hangs_when_it_closes_does_not_keep_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeper, "CLOSING_SECONDS", 0.01)
    with capture_logs() as logs, pytest.raises(ZeroDivisionError):
        async with opened("HangsClosing"):
            raise ZeroDivisionError
    (log,) = logs
    assert log["event"] == "handler.close_failed"
    assert log["error"] == "it took longer than 0.01 s"


async def test_ddl_goes_to_on_ddl_or_nowhere() -> None:
    drop = ChangeEvent.from_document(ddl(2))
    async with opened("Plain") as handler:
        await deliver(handler, drop)
    async with opened("Storing", options={"dsn": "x"}) as handler:
        await deliver(handler, drop)
    assert targets.CALLS == ["opened", "drop", "closed"]


async def test_on_ddl_may_take_the_scope_too() -> None:
    async with opened("TakesScope") as handler:
        await deliver(handler, ChangeEvent.from_document(ddl(2)))
    assert targets.CALLS == ["opened", ("drop", "orders", "rs0"), "closed"]


class TestPosition:
    @pytest.fixture(autouse=True)
    def nothing_stored(self) -> None:
        targets.Ready.stored = None

    async def test_a_batch_has_the_text_to_store_and_the_one_that_must_be_there(self) -> None:
        async with opened("Ready") as handler:
            assert await begin(handler) is None
            await deliver(handler, EVENT)
            moved = replace(OWNER, observed_generation=3)
            await deliver(handler, ChangeEvent.from_document(change(2)), identity=moved)
        async with opened("Ready") as again:
            position = await begin(again)
        assert position is not None
        assert position.is_at(ChangeEvent.from_document(change(2)))
        assert position.observed_generation == 3

    async def test_begin_learns_scope_epoch_and_how_often_it_was_called(self) -> None:
        async with opened("Ready") as handler:
            for _ in range(2):
                await begin(handler)
            await deliver(handler, EVENT)
            await begin(handler)
        assert [call[1:] for call in targets.CALLS] == [
            ("orders", 1, 1),
            ("orders", 1, 2),
            ("orders", 1, 1),
        ]

    @pytest.mark.parametrize(
        ("of", "message"),
        [
            (RunIdentity("carts", "rs0", "", 1), "it is the position of scope 'carts'"),
            (RunIdentity("orders", "rs1", "", 1), "it is a position in cluster rs1"),
        ],
    )
    async def test_a_position_of_another_scope_or_cluster_is_refused(
        self, of: RunIdentity, message: str
    ) -> None:
        async with opened("Ready") as handler:
            await begin(handler, of)
            await deliver(handler, EVENT, identity=of)
            with pytest.raises(InvalidPosition, match=message):
                await begin(handler)

    @pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"scope": 1}', 7])
    async def test_a_text_that_is_not_a_position_is_refused(self, text: Any) -> None:
        async with opened("Ready") as handler:
            targets.Ready.stored = text
            with pytest.raises(InvalidPosition):
                await begin(handler)


class TestCommit:
    async def test_commit_events_commit_bytes_and_commit_seconds_are_its_bounds(self) -> None:
        bounds = {"commit_events": 7, "commit_bytes": 1024, "commit_seconds": 0.5}
        async with opened("Accepting", **bounds) as handler:
            assert handler.position is None
            assert handler.commit is not None
            bounds_of = handler.commit
            assert (bounds_of.events, bounds_of.bytes, bounds_of.seconds) == (7, 1024, 0.5)
            await deliver(handler, EVENT)
            await commit(handler)
        assert targets.CALLS == [("write", None, None), ("commit", "orders", 1)]

    async def test_a_new_run_first_rolls_back_what_was_not_committed(self) -> None:
        """Also long after: another process may have followed the scope meanwhile."""
        async with opened("Accepting") as handler:
            await deliver(handler, EVENT)
            await deliver(handler, EVENT, identity=replace(OWNER, epoch=3))
            await commit(handler)
            await deliver(handler, EVENT, identity=replace(OWNER, epoch=4))
        words = [call[0] for call in targets.CALLS]
        assert words == ["write", "rollback", "write", "commit", "write"]

    async def test_former_is_the_position_of_the_last_commit(self) -> None:
        async with opened("AcceptingWithPosition") as handler:
            await begin(handler)
            for n in (1, 2):
                await deliver(handler, ChangeEvent.from_document(change(n)))
            await commit(handler)
            await deliver(handler, ChangeEvent.from_document(change(3)))
            await begin(handler)
        (_, one, none), (_, two, also_none), committed, (_, _, former), rollback = targets.CALLS
        assert none is also_none is None
        assert one != two == former
        assert (committed[0], rollback[0]) == ("commit", "rollback")

    @pytest.mark.parametrize(
        ("target", "fields", "path", "message"),
        [
            ("CommitsOnly", {}, "target", "has a commit and neither rollback nor begin"),
            ("RollsBackOnly", {}, "target", "has a rollback without a commit"),
            ("CommitsAtOnce", {}, "target", "has a commit that is not a coroutine method"),
            ("Plain", {"commit_seconds": 1}, "commit_seconds", "is for a class with a coroutine"),
            ("Accepting", {"order": "key"}, "order", "has commit: it covers all earlier events"),
        ],
    )
    def test_what_does_not_fit_is_refused(
        self, target: str, fields: dict[str, Any], path: str, message: str
    ) -> None:
        (problem,) = check_handlers({"lake": settings(target, **fields)})
        assert problem.path == f"handlers.lake.{path}"
        assert message in problem.message
