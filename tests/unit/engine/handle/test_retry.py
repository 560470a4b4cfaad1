"""What happens to an event that its handler refuses: attempts, letters, order, the breaker."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from tailrace.engine.handle.delivery import Delivery, Handled
from tailrace.errors import (
    DeliveryInterrupted,
    HandlerGaveUp,
    PermanentError,
)
from tailrace.event import ChangeEvent
from tailrace.event.naming import identified
from tailrace.model.dead_letter import DeadLetter
from tailrace.model.failure_policy import Backoff, FailurePolicy
from tailrace.observe.handler_recorder import HandlerRecorder
from tailrace.observe.recent_errors import RecentErrors
from tailrace.stores.memory import MemoryDeadLetters
from tailrace.stream import Interrupt
from tests.guards import against_hanging
from tests.handlers import handler
from tests.unit.engine.changes import change, delivery_to, number, set_aside, settle

AT_ONCE = {"backoff": Backoff(0, 0)}


class Refusing:
    """A handler that fails ``failures[n]`` times at event ``n``; records every call."""

    def __init__(self, error: BaseException | None = None, **failures: int) -> None:
        self.error = error or OSError("refused")
        self.failures = Counter({int(name[1:]): times for name, times in failures.items()})
        self.calls: list[list[int]] = []

    async def on_event(self, event: ChangeEvent) -> None:
        await self.on_events([event])

    async def on_events(self, events: Sequence[ChangeEvent]) -> None:
        numbers = [number(event) for event in events]
        self.calls.append(numbers)
        for n in numbers:
            if self.failures[n]:
                self.failures[n] -= 1
                raise self.error


class Case:
    """A delivery with dead letters in memory."""

    def __init__(
        self,
        refusing: Refusing,
        *,
        batches: bool = False,
        stop: Interrupt | None = None,
        **policy: Any,
    ) -> None:
        self.refusing = refusing
        self.letters = MemoryDeadLetters()
        self.recorder = HandlerRecorder()
        self.policy = FailurePolicy(**{"attempts": 3, **AT_ONCE, **policy})
        self.errors, self.stop = RecentErrors(), stop or Interrupt()
        on_event, on_events = refusing.on_event, refusing.on_events
        self.delivery = (
            self.of(on_events=on_events, name="audit")
            if batches
            else self.of(on_event, name="audit")
        )

    def of(
        self,
        on_event: Callable[[ChangeEvent], Awaitable[Any]] | None = None,
        on_events: Callable[[list[Any]], Awaitable[Any]] | None = None,
        *,
        raw: bool = False,
        name: str = "odd",
    ) -> Delivery:
        """A delivery to another handler, with the same policy, letters and recorder."""
        return delivery_to(
            handler(name, on_event, on_events, raw=raw, failure=self.policy),
            letters=self.letters,
            recorder=self.recorder,
            errors=self.errors,
            stop=self.stop,
        )

    async def set_aside(self) -> list[DeadLetter]:
        return list(await self.letters.letters())


def event(n: int, key: object = None) -> ChangeEvent:
    return ChangeEvent.from_document(change(n, key=n if key is None else key))


async def test_an_event_is_tried_again_until_it_works() -> None:
    case = Case(Refusing(n1=2))
    await case.delivery.deliver_all([event(1)], Handled())
    assert case.refusing.calls == [[1], [1], [1]]
    assert case.recorder.retries == 2
    assert case.recorder.outcomes == {"ok": 1, "error": 2, "dead_letter": 0}
    assert await case.set_aside() == []


async def test_after_the_last_attempt_it_is_set_aside_whole() -> None:
    case = Case(Refusing(n1=99))
    await case.delivery.deliver_all([event(1)], Handled())
    (letter,) = await case.set_aside()
    assert (letter.scope, letter.handler, letter.attempts) == ("orders", "audit", 3)
    assert letter.error == "OSError: refused"
    which = identified(event(1))
    assert [(each["message"], each["times"]) for each in case.errors.documents()] == [
        (f"handler 'audit', {which} became a dead letter: OSError: refused", 1),
        (f"handler 'audit' on {which}: OSError: refused", 2),
    ]
    assert letter.raw == event(1).raw
    assert case.recorder.outcomes == {"ok": 0, "error": 3, "dead_letter": 1}


async def test_no_event_of_a_batch_is_named_before_the_one_at_fault_is_known() -> None:
    case = Case(Refusing(n2=99), batches=True, attempts=2, halt=True)
    with capture_logs() as logs, pytest.raises(HandlerGaveUp) as failed:
        await case.delivery.deliver_all([event(n) for n in (1, 2, 3)], Handled())
    (log,) = [log for log in logs if log["event"] == "handler.failed"]
    assert log["events"] == 3
    assert "document_key" not in log
    assert case.errors.last is not None
    assert case.errors.last.message == "handler 'audit' on 3 events: OSError: refused"
    assert f"handler 'audit' failed on {identified(event(2))}" in str(failed.value)
    assert '{"_id": 2}' in str(failed.value)


async def test_a_permanent_error_is_not_tried_again() -> None:
    case = Case(Refusing(PermanentError("never"), n1=99))
    await case.delivery.deliver_all([event(1)], Handled())
    assert case.refusing.calls == [[1]]
    (letter,) = await case.set_aside()
    assert letter.attempts == 1


async def test_more_than_max_ratio_of_the_last_ratio_window_events_trips_the_breaker() -> None:
    odd = {f"n{n}": 99 for n in range(1, 40, 2)}
    case = Case(Refusing(**odd), attempts=1, max_ratio=0.4, ratio_window=10)
    for n in range(9):
        await case.delivery.deliver_all([event(n)], Handled())
    assert len(await case.set_aside()) == 4
    await case.delivery.deliver_all([event(10)], Handled())
    with pytest.raises(HandlerGaveUp, match="5 of the last 10 events"):
        await case.delivery.deliver_all([event(11)], Handled())


async def test_letters_that_several_lanes_store_at_once_are_counted_with_their_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(
        Refusing(**{f"n{n}": 99 for n in range(40)}), attempts=1, max_ratio=1.0, ratio_window=10
    )
    add, stored = case.letters.add, anyio.Event()

    async def slowly(letter: DeadLetter, epoch: int) -> None:
        await stored.wait()
        await add(letter, epoch)

    monkeypatch.setattr(case.letters, "add", slowly)
    async with anyio.create_task_group() as tasks:
        for n in range(40):
            tasks.start_soon(case.delivery.deliver_all, [event(n)], Handled())
        await settle()
        stored.set()
    assert len(await case.set_aside()) == 40


async def test_a_stop_ends_the_waiting_between_attempts() -> None:
    case = Case(Refusing(n1=99), backoff=Backoff(3600, 3600))
    case.stop.set()
    with against_hanging(), pytest.raises(DeliveryInterrupted):
        await case.delivery.deliver_all([event(1)], Handled())
    assert case.refusing.calls == [[1]]
    assert await case.set_aside() == []


class Patience(Interrupt):
    """An interrupt whose sleeps take no time and are recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def delays(error: BaseException | None = None, **policy: Any) -> list[float]:
    """The delays between the attempts at an event that is always refused."""
    patience = Patience()
    case = Case(Refusing(error, n1=10**6), stop=patience, **policy)
    await case.delivery.deliver_all([event(1)], Handled())
    assert len(case.refusing.calls) == case.policy.attempts
    return patience.slept


async def test_delays_are_those_of_the_back_off() -> None:
    slept = await delays(attempts=9, backoff=Backoff(1, 20))
    for delay, whole in zip(slept, [1, 2, 4, 8, 16, 20, 20, 20], strict=True):
        assert whole / 2 <= delay <= whole


async def test_of_a_sequence_later_events_of_the_same_key_follow_it() -> None:
    case = Case(Refusing(n1=99), batches=True, attempts=1)
    await case.delivery.deliver_all([event(1, "a"), event(2, "b"), event(3, "a")], Handled())
    assert await set_aside(case.letters) == [1, 3]
    await case.delivery.deliver_all([event(4, "a"), event(5, "b")], Handled())
    assert case.refusing.calls[-1] == [5]
    assert await set_aside(case.letters) == [1, 3, 4]


async def test_of_a_sequence_of_bytes_the_event_at_fault_is_found_as_well() -> None:
    """The whole event becomes a dead letter, and so does what its key holds back."""
    case, calls = Case(Refusing(), attempts=2), list[list[int]]()

    async def refusing(documents: Sequence[bytes]) -> None:
        calls.append([number(ChangeEvent.from_raw(raw)) for raw in documents])
        if 2 in calls[-1]:
            raise OSError("refused")

    delivery = case.of(on_events=refusing, raw=True)
    events = [event(n, key) for n, key in ((1, "a"), (2, "b"), (3, "c"))]
    await delivery.deliver_all(events, Handled())
    assert calls == [[1, 2, 3], [1, 2, 3], [1], [2], [3]]
    await delivery.deliver_all([event(4, "b"), event(5, "a")], Handled())
    assert calls[-1] == [5]
    assert [letter.raw for letter in await case.set_aside()] == [
        events[1].raw,
        event(4, "b").raw,
    ]
