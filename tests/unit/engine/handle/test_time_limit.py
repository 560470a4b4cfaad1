"""Handlers that misbehave: each case has one defined outcome."""

import gc
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from tailrace.engine.handle import time_limit
from tailrace.engine.handle.delivery import Handled
from tailrace.event import ChangeEvent
from tests.unit.engine.changes import number, set_aside, until
from tests.unit.engine.handle.test_retry import Case, Refusing, event


@pytest.fixture
def log() -> Iterator[list[Any]]:
    with capture_logs() as logs:
        yield logs


def logged(log: list[Any], name: str) -> list[Any]:
    return [entry for entry in log if entry["event"] == name]


async def work(event: object) -> None:
    """A coroutine that a handler forgets to await."""


class TestReturned:
    @pytest.mark.parametrize("batches", [False, True])
    async def test_a_coroutine_that_nobody_awaited_is_a_failure_at_once(
        self, log: list[Any], batches: bool
    ) -> None:
        async def forgets(event: object) -> Any:
            return work(event)

        case = Case(Refusing(), batches=batches)
        if batches:
            await case.of(on_events=forgets).deliver_all([event(1)], Handled())
        else:
            await case.of(forgets).deliver_all([event(1)], Handled())
        (letter,) = await case.set_aside()
        assert "returned a coroutine that nobody awaited" in letter.error
        assert case.recorder.outcomes["ok"] == 0
        assert case.recorder.retries == 0
        gc.collect()  # a warning about an unawaited coroutine would fail the test here

    @pytest.mark.parametrize("value", [0, False, {"failed": [1]}, ValueError("no")])
    async def test_any_other_value_is_ignored_with_one_warning(
        self, log: list[Any], value: object
    ) -> None:
        async def returns(event: object) -> object:
            return value

        case = Case(Refusing())
        odd = case.of(returns)
        for n in range(3):
            await odd.deliver_all([event(n)], Handled())
        assert case.recorder.outcomes == {"ok": 3, "error": 0, "dead_letter": 0}
        (warning,) = logged(log, "handler.return_ignored")
        assert (warning["scope"], warning["handler"]) == ("orders", "odd")
        assert warning["type"] == type(value).__name__


class TestRaised:
    @pytest.mark.parametrize(
        "error",
        [SystemExit(0), KeyboardInterrupt(), BaseExceptionGroup("two", [SystemExit()])],
        ids=lambda error: type(error).__name__,
    )
    async def test_what_would_end_the_process_is_a_failure(self, error: BaseException) -> None:
        case = Case(Refusing(error, n1=1))
        await case.delivery.deliver_all([event(1)], Handled())
        assert case.refusing.calls == [[1], [1]]
        assert case.recorder.outcomes == {"ok": 1, "error": 1, "dead_letter": 0}

    async def test_an_error_made_of_our_cancellation_is_not_a_failure(self) -> None:
        """Otherwise the last attempt, cut at the end of the grace, would become a dead letter."""

        async def translates(event: object) -> None:
            try:
                await anyio.sleep_forever()
            except BaseException as error:
                raise ConnectionError("aborted") from error

        case = Case(Refusing(), attempts=1)
        with anyio.move_on_after(0) as scope:
            await case.of(translates).deliver_all([event(1)], Handled())
        assert scope.cancelled_caught
        assert case.recorder.outcomes == {"ok": 0, "error": 0, "dead_letter": 0}
        assert await case.set_aside() == []


class TestTimeLimit:
    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(time_limit, "LOOK_SECONDS", 0.02)

    async def test_an_attempt_that_ignores_timeout_seconds_keeps_its_lane_and_is_told(
        self, log: list[Any]
    ) -> None:
        release = anyio.Event()
        inside: list[int] = []
        calls: list[int] = []

        async def stubborn(event: ChangeEvent) -> None:
            calls.append(number(event))
            inside.append(number(event))
            assert inside.count(number(event)) == 1  # never two attempts at one event
            with anyio.CancelScope(shield=len(calls) == 1):
                await release.wait()
            await anyio.lowlevel.checkpoint()  # the cancellation is noticed here
            inside.remove(number(event))

        case = Case(Refusing(), timeout_seconds=0.01)
        odd = case.of(stubborn)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(odd.deliver_all, [event(1)], Handled())
            await until(lambda: case.recorder.overdue == 1)
            (warning,) = logged(log, "handler.overdue")
            assert warning["event_id"] == event(1).token.digest
            assert (warning["scope"], warning["handler"]) == ("orders", "odd")
            assert warning["timeout_seconds"] == 0.01
            assert calls == [1]
            inside.clear()
            release.set()
        assert calls == [1, 1]
        assert case.recorder.overdue == 0
        assert case.recorder.outcomes == {"ok": 1, "error": 1, "dead_letter": 0}
        assert len(logged(log, "handler.overdue_ended")) == 1

    async def test_an_attempt_is_not_accused_of_what_blocks_the_event_loop(
        self, log: list[Any]
    ) -> None:
        async def waits(event: ChangeEvent) -> None:
            await anyio.sleep_forever()

        case = Case(Refusing(), attempts=1, timeout_seconds=0.01)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(case.of(waits).deliver_all, [event(1)], Handled())
            await anyio.lowlevel.checkpoint()
            time.sleep(0.2)  # noqa: ASYNC251 - this is the fault
        assert logged(log, "handler.overdue") == []
        (letter,) = await case.set_aside()
        assert letter.error == (
            "AttemptTimedOut: handler 'odd': the call did not end within its timeout_seconds "
            "(0.01 s)"
        )
        (entry,) = logged(log, "event.dead_lettered")
        assert entry["traceback"] == ""


Change = Callable[[ChangeEvent], object]


def forget_key(event: ChangeEvent) -> object:
    return event.document.pop("documentKey")


def another_key(event: ChangeEvent) -> object:
    assert event.document_key is not None
    return event.document_key.update(_id="another")


def empty(event: ChangeEvent) -> object:
    return event.document.clear()


@pytest.mark.parametrize("spoil", [forget_key, another_key, empty])
class TestMutated:
    """What a handler may have changed never affects what is stored or retried."""

    async def test_an_event_that_a_handler_changed_comes_unchanged_to_the_next_attempt(
        self, spoil: Change
    ) -> None:
        seen: list[dict[str, Any]] = []

        async def spoils(event: ChangeEvent) -> None:
            seen.append(deepcopy(event.document))
            spoil(event)
            raise OSError("half done")

        case = Case(Refusing())
        await case.of(spoils).deliver_all([event(1)], Handled())
        assert seen == [event(1).document] * 3
        (letter,) = await case.set_aside()
        assert letter.raw == event(1).raw
        assert letter.key == event(1).key

    async def test_a_sequence_that_a_handler_changed_comes_unchanged_to_the_next_attempt(
        self, spoil: Change
    ) -> None:
        """After the whole sequence has failed, each event is identified by its key."""
        calls: list[list[dict[str, Any]]] = []

        async def spoils(events: list[ChangeEvent]) -> None:
            calls.append([deepcopy(one.document) for one in events])
            poisoned = any(number(one) == 1 for one in events)
            for one in events:
                spoil(one)
            if poisoned:
                raise OSError("poison")

        case = Case(Refusing(), attempts=2)
        events = [event(1, "a"), event(2, "b"), event(3, "a")]
        await case.of(on_events=spoils).deliver_all(events, Handled())
        whole = [one.fresh().document for one in events]
        assert calls == [whole, whole, whole[:1], whole[1:2]]
        assert await set_aside(case.letters) == [1, 3]
        assert {letter.key for letter in await case.set_aside()} == {event(1, "a").key}
