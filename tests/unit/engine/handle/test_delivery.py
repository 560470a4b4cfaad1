"""One attempt at a handler: what is counted, and what its failure says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import anyio
import pytest

from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.ports import Handler
from tailrace.errors import CheckpointFenced, HandlerFailed
from tailrace.event import ChangeEvent
from tailrace.observe.handler_recorder import HandlerRecorder
from tests.unit.engine.changes import change, token

EVENT = ChangeEvent.from_document(change(1))
OTHER = ChangeEvent.from_document(change(2))


async def accept(event: ChangeEvent) -> None:
    pass


async def accept_all(events: Sequence[ChangeEvent]) -> None:
    pass


async def refuse(event: object) -> None:
    raise OSError(28, "No space left on device")


async def hang(event: object) -> None:
    await anyio.sleep_forever()


@pytest.fixture
def recorder() -> HandlerRecorder:
    return HandlerRecorder()


async def test_calls_and_events_are_counted(recorder: HandlerRecorder) -> None:
    delivery = Delivery(Handler("audit", accept, accept_all), recorder)
    await delivery.deliver(EVENT)
    await delivery.deliver_all([EVENT, OTHER])
    assert recorder.outcomes == {"ok": 3, "error": 0, "dead_letter": 0}
    assert sum(recorder.counts) == 2
    assert 0 < recorder.seconds < 1


async def test_a_failure_names_handler_event_and_cause(recorder: HandlerRecorder) -> None:
    delivery = Delivery(Handler("audit", refuse, refuse), recorder)
    for attempt in (delivery.deliver(EVENT), delivery.deliver_all([EVENT, OTHER])):
        with pytest.raises(HandlerFailed) as failed:
            await attempt
        assert str(failed.value) == (
            f"handler 'audit' failed on event {token(1).digest}: "
            "OSError: [Errno 28] No space left on device"
        )
        assert isinstance(failed.value.__cause__, OSError)
    assert recorder.outcomes == {"ok": 0, "error": 3, "dead_letter": 0}
    assert sum(recorder.counts) == 2


async def test_a_cancellation_is_no_failure_and_is_not_counted(recorder: HandlerRecorder) -> None:
    delivery = Delivery(Handler("audit", hang, hang), recorder)
    for attempt in (delivery.deliver(EVENT), delivery.deliver_all([EVENT])):
        with anyio.move_on_after(0) as scope:
            await attempt
        assert scope.cancelled_caught
    assert recorder.outcomes == {"ok": 0, "error": 0, "dead_letter": 0}


async def test_a_stray_cancelled_error_of_the_handler_is_a_failure(
    recorder: HandlerRecorder,
) -> None:
    async def await_cancelled(event: object) -> None:
        raise asyncio.CancelledError

    delivery = Delivery(Handler("audit", await_cancelled, await_cancelled), recorder)
    for attempt in (delivery.deliver(EVENT), delivery.deliver_all([EVENT])):
        with pytest.raises(HandlerFailed):
            await attempt
    assert recorder.outcomes == {"ok": 0, "error": 2, "dead_letter": 0}


async def test_a_handler_may_use_time_limits_of_its_own(recorder: HandlerRecorder) -> None:
    async def impatient(event: ChangeEvent) -> None:
        with anyio.fail_after(0):
            await anyio.sleep_forever()

    with pytest.raises(HandlerFailed, match="TimeoutError"):
        await Delivery(Handler("audit", impatient), recorder).deliver(EVENT)


async def test_what_a_destination_says_of_its_own_position_is_no_events_fault(
    recorder: HandlerRecorder,
) -> None:
    """No attempt mends it and no event is set aside for it: the decision on it is the watcher's."""

    async def fenced(events: object) -> None:
        raise CheckpointFenced("another process writes here")

    async def position(owner: object) -> None:
        return None

    owns = Delivery(Handler("lake", on_events=fenced, position=position), recorder)
    with pytest.raises(CheckpointFenced):
        await owns.deliver_all([EVENT, OTHER])
    assert recorder.outcomes == {"ok": 0, "error": 2, "dead_letter": 0}
    other = Delivery(Handler("mine", on_events=fenced), recorder)
    with pytest.raises(HandlerFailed):
        await other.deliver_all([EVENT])
