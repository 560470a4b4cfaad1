"""One attempt at a handler: what is counted, and which failures are not the event's fault."""

from collections.abc import Sequence

import anyio
import pytest

from tailrace.engine.handle.delivery import Handled
from tailrace.errors import CheckpointFenced, HandlerGaveUp
from tailrace.event import ChangeEvent
from tailrace.observe.handler_recorder import HandlerRecorder
from tests.handlers import handler
from tests.unit.engine.changes import HALT, change, delivery_to, token

EVENT = ChangeEvent.from_document(change(1))
OTHER = ChangeEvent.from_document(change(2))


async def accept(event: ChangeEvent) -> None:
    pass


async def accept_all(events: Sequence[ChangeEvent]) -> None:
    pass


async def hang(event: object) -> None:
    await anyio.sleep_forever()


@pytest.fixture
def recorder() -> HandlerRecorder:
    return HandlerRecorder()


async def test_calls_and_events_are_counted(recorder: HandlerRecorder) -> None:
    await delivery_to(handler("audit", accept), recorder=recorder).deliver(EVENT)
    to = delivery_to(handler("audit", on_events=accept_all), recorder=recorder)
    await to.deliver_all([EVENT, OTHER], Handled())
    assert recorder.outcomes == {"ok": 3, "error": 0, "dead_letter": 0}
    assert sum(recorder.counts) == 2
    assert 0 < recorder.seconds < 1


async def test_a_failure_that_halts_names_handler_event_and_cause(
    recorder: HandlerRecorder,
) -> None:
    async def refuse(event: object) -> None:
        raise OSError(28, "No space left on device")

    to = delivery_to(handler("audit", refuse, failure=HALT), recorder=recorder)
    with pytest.raises(HandlerGaveUp) as failed:
        await to.deliver_all([EVENT], Handled())
    what = f'event {token(1).digest} (insert of {{"_id": 1}} in shop.orders at '
    assert f"handler 'audit' failed on {what}" in str(failed.value)
    assert "OSError: [Errno 28] No space left on device" in str(failed.value)
    assert isinstance(failed.value.__cause__, OSError)
    assert recorder.outcomes == {"ok": 0, "error": 1, "dead_letter": 0}


async def test_a_cancellation_is_no_failure_and_is_not_counted(recorder: HandlerRecorder) -> None:
    single = delivery_to(handler("audit", hang), recorder=recorder)
    several = delivery_to(handler("audit", on_events=hang), recorder=recorder)
    for attempt in (single.deliver(EVENT), several.deliver_all([EVENT], Handled())):
        with anyio.move_on_after(0) as scope:
            await attempt
        assert scope.cancelled_caught
    assert recorder.outcomes == {"ok": 0, "error": 0, "dead_letter": 0}


async def test_an_error_of_a_destinations_position_is_not_an_events_fault(
    recorder: HandlerRecorder,
) -> None:
    """No retry helps, and no event becomes a dead letter: the watcher decides."""

    async def fenced(events: object) -> None:
        raise CheckpointFenced("another process writes here")

    async def position(owner: object) -> None:
        return None

    owns = delivery_to(handler("lake", on_events=fenced, position=position), recorder=recorder)
    with pytest.raises(CheckpointFenced):
        await owns.deliver_all([EVENT, OTHER], Handled())
    assert recorder.outcomes == {"ok": 0, "error": 2, "dead_letter": 0}
    await delivery_to(handler("mine", on_events=fenced), recorder=recorder).deliver_all(
        [EVENT], Handled()
    )
    assert recorder.outcomes["dead_letter"] == 1
