"""Finds an event among those in flight: nothing is recorded for that while events are handled."""

from collections.abc import Mapping, Sequence

from tailrace.engine.handle.lane import Lane
from tailrace.engine.handler_run import HandlerRun
from tailrace.engine.ports import PerBatch
from tailrace.engine.position.place import Place
from tailrace.engine.status.in_flight import InFlight, Stage
from tailrace.engine.status.lag import awaited_call
from tailrace.model import ResumeToken


def in_flight(handlers: Sequence[HandlerRun], token: ResumeToken) -> Mapping[str, InFlight] | None:
    """By handler, how far the event with this token is; ``None`` if no handler has it unfinished.

    Reads one token for each place before the event's.
    """
    stages = dict[str, InFlight]()
    for handler in handlers:
        place = _place_of(handler, token)
        if place is not None and handler.lane is not None:
            stages[handler.name] = _stage(handler.lane, place, token)
    if not stages:
        return None
    handled = InFlight(Stage.HANDLED, "it is handled")
    return {handler.name: stages.get(handler.name, handled) for handler in handlers}


def _place_of(handler: HandlerRun, token: ResumeToken) -> Place | None:
    if handler.watermark.position.progress.covers(token, token.cluster_time):
        return None
    for place in handler.watermark.places:
        last = _last(place)
        if last is not None and (token == last or token.precedes(last)):
            return place
    return None


def _last(place: Place) -> ResumeToken | None:
    """The token of the last change of a place; ``None`` for bookmarks and for rows."""
    if place.rows or not place.events:
        return None
    last = place.slice.last() if place.slice is not None else place.last
    return last.token if last is not None else None


def _stage(lane: Lane, place: Place, token: ResumeToken) -> InFlight:
    recorder = lane.delivery.recorder
    cause, is_down = recorder.down_cause, recorder.down_since is not None
    down = f"; its destination is down: {cause}" if is_down else ""
    if place.number > lane.opened:
        stage = Stage.WAITING if down else Stage.QUEUED
        return InFlight(stage, f"it is read, and waits for the handler{down}")
    unhandled = lane.unhandled().get(place.number, ())
    if unhandled is not None and token not in unhandled:
        return InFlight(Stage.HANDLED, "it is handled; the checkpoint waits for earlier changes")
    if down:
        return InFlight(Stage.WAITING, f"the handler has it{down}")
    batch = isinstance(lane.delivery.handler.calls, PerBatch)
    if recorder.call_since is not None:
        call = awaited_call(lane.delivery.name, recorder.call, recorder.call_since)
        return InFlight(Stage.WAITING, f"the handler has it, and {call}")
    failed = recorder.failing.get(token.digest)
    if failed is None and batch:  # failures are noted for the first event of a call
        failed = next(iter(recorder.failing.values()), None)
    if failed is not None:
        number, error = failed
        often = "once" if number == 1 else f"{number} times"
        what = f"{'a call with it' if batch else 'it'} has failed {often}, and is tried again"
        return InFlight(Stage.RETRYING, f"{what}: {error}")
    return InFlight(Stage.DELIVERED, "the handler has it, or an earlier change of the document")
