"""A handler is fresh if it has handled all there is, and never because nothing is heard."""

from collections.abc import Callable
from typing import Any

import pytest

from tailrace.engine.status.document import status_document
from tailrace.engine.status.gauges import gauges
from tailrace.engine.status.watcher_state import WatcherState
from tailrace.observe.freshness import Freshness
from tailrace.observe.handler_recorder import HandlerRecorder
from tests.unit.engine.changes import batch, change, checkpoint, time, token
from tests.unit.engine.test_watcher_status import Watched

MAX_LAG = 30.0


class Promised(Watched):
    """A handler that may be 30 s behind; its first change is handled and saved."""

    def __init__(self, *, unknown: bool = False) -> None:
        super().__init__()
        recorder = HandlerRecorder()
        recorder.freshness = Freshness(MAX_LAG, lambda: self.elapsed)
        self.status.recorders = {"audit": recorder}
        if unknown:
            self.status.watermark = None
            return
        (place,), _ = self.reply(batch([change(0)]), 0)
        self.finish(place)
        self.save()
        self.status.enter(WatcherState.CAUGHT_UP)

    def pass_time(self, until: int, *, replies: bool = True) -> None:
        """The server's time and ours go on; the stream's replies are empty, or do not come."""
        for now in range(int(self.elapsed) + 1, until + 1):
            self.elapsed = now
            if replies:
                self.reply(batch([], token(now), time(now)), now)
            else:
                self.clock.answered(time(now))

    @property
    def breached(self) -> bool | None:
        (of,) = gauges(self.status).subscriptions.values()
        document = status_document(self.status)["handlers"]["audit"]["freshness"]
        assert document is None or document["breached"] is of.breached
        return of.breached


def in_state(state: WatcherState) -> Callable[[Promised], None]:
    return lambda one: one.status.enter(state, "a reason")


def unhandled(one: Promised) -> None:
    one.reply(batch([change(1)]), 1)


def out_of_its_destination(one: Promised) -> None:
    unhandled(one)
    one.status.recorders["audit"].down_since = 1.0
    assert one.status.state is WatcherState.WAITING


def in_standby(one: Promised) -> None:
    one.status.stand_by()
    one.status.stored(checkpoint(0))


def restarted(one: Promised) -> None:
    one.status.watermark = None
    one.status.enter(WatcherState.STARTING)


@pytest.mark.parametrize(
    "becomes",
    [
        unhandled,
        out_of_its_destination,
        *map(in_state, (WatcherState.HALTED, WatcherState.PAUSED, WatcherState.BACKING_OFF)),
        *map(in_state, (WatcherState.WAITING, WatcherState.STOPPED, WatcherState.DRAINING)),
        in_standby,
        restarted,
    ],
)
def test_a_handler_that_handles_nothing_becomes_too_old(becomes: Any) -> None:
    one = Promised()
    becomes(one)
    one.pass_time(30, replies=becomes in (unhandled, out_of_its_destination))
    assert one.breached is False
    one.pass_time(32, replies=becomes in (unhandled, out_of_its_destination))
    assert one.breached is True


@pytest.mark.parametrize("state", [WatcherState.CAUGHT_UP, WatcherState.BACKING_OFF])
def test_a_silent_server_makes_a_handler_old(state: WatcherState) -> None:
    one = Promised()
    one.status.enter(state)
    one.elapsed = 29
    assert one.breached is False
    one.elapsed = 31
    assert one.breached is True


def test_a_stream_that_is_silent_alone_makes_a_handler_old() -> None:
    one = Promised()
    one.pass_time(31, replies=False)
    assert one.breached is True


def test_an_idle_handler_stays_fresh_and_one_that_catches_up_becomes_so() -> None:
    one = Promised()
    one.pass_time(3600)
    assert one.breached is False
    (place,), _ = one.reply(batch([change(3601)]), 3601)
    one.pass_time(3700)
    assert one.breached is True
    one.finish(place)
    assert one.breached is False


def test_a_handler_of_which_nothing_is_known_is_as_old_as_the_process() -> None:
    one = Promised(unknown=True)
    one.elapsed = 30
    assert one.breached is False
    one.elapsed = 31
    assert one.breached is True


def test_a_handler_of_which_nothing_is_known_any_more_goes_on_to_become_older() -> None:
    one = Promised()
    one.pass_time(3600)
    assert one.breached is False
    one.status.watermark = one.status.checkpoint = one.status.committed_time = None
    one.elapsed = 3625
    assert one.breached is False
    one.elapsed = 3631
    assert one.breached is True


def test_without_a_max_lag_there_is_none() -> None:
    one = Promised()
    one.status.recorders["audit"].freshness.max_lag = None
    one.elapsed = 1e6
    assert one.breached is None
