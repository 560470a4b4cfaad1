"""What a watcher reports: state, lags, position."""

import json
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from tailrace.engine.position.place import Place
from tailrace.engine.position.watermark import Watermark
from tailrace.engine.position.watermarks import Watermarks
from tailrace.engine.status.document import status_document
from tailrace.engine.status.gauges import gauges
from tailrace.engine.status.status import Status
from tailrace.engine.status.watcher_state import WatcherState
from tailrace.event import RawBatch
from tailrace.model import Checkpoint, Position, PositionKind, ResumeToken, Scope
from tailrace.stream.server_clock import LATE_SECONDS, SILENCE_SECONDS, OplogRange, ServerClock
from tests.unit.engine.changes import NOTHING, batch, change, checkpoint, time, token

ODD = ResumeToken.of({"_data": "not of mongod"})


class Watched:
    """A status that is updated as a watcher's run would update it. ``handlers``: how many get the
    changes."""

    def __init__(self, start: Position = NOTHING, *, handlers: int = 1) -> None:
        self.elapsed = 0.0
        self.clock = ServerClock(lambda: self.elapsed)
        self.status = Status(Scope("orders", "shop", "orders"), self.clock)
        self.status.watermark = Watermarks(start.cluster_time, lambda freed: None)
        self.watermark = Watermark(start, self.status.watermark.moved, handles=handlers > 0)
        self.status.watermark.each["audit"] = self.watermark

    def finish(self, *places: Place) -> None:
        for place in places:
            self.watermark.finish(place)

    def reply(self, whole: RawBatch, server: int | None, *, opening: bool = False) -> Any:
        """One reply at the server's time ``server``; returns its places and the state."""
        self.status.stream.answered(None if server is None else time(server))
        if server is not None:
            whole = replace(whole, operation_time=time(server))
        of_all, slices = self.status.watermark, list(whole.slices())
        assert of_all is not None
        of_all.read(whole)
        places = self.watermark.admit(
            slices,
            whole.token,
            of_all.admitted(whole),
            otherwise=whole.operation_time,
            holds=of_all.holds(slices, 1),
        )
        return places, self.status.following(len(whole), opening=opening)

    def save(self) -> None:
        self.status.checkpoint = behind(self.watermark.position)
        self.status.committed(self.watermark.handled_time)

    @property
    def lags(self) -> dict[str, float]:
        return self.status.lags


def behind(position: Position) -> Checkpoint:
    return checkpoint(
        0,
        kind=position.kind,
        event_token=position.event_token,
        high_water=position.high_water,
        cluster_time=position.cluster_time,
        epoch=3,
    )


def test_lags_are_absent_while_unknown() -> None:
    """Never 0: a consumer that has read nothing yet is not up to date."""
    assert Status(Scope("orders")).lags == {}
    assert Watched().lags == {}


def test_lags_of_an_event_are_those_of_its_time_by_stage() -> None:
    watched = Watched(Position(PositionKind.EVENT, token(0), token(0), time(0)))
    (place,), _ = watched.reply(batch([change(5)]), 20)
    assert watched.lags == {"read": 15, "handled": 20}
    watched.finish(place)
    assert watched.lags == {"read": 15, "handled": 15}
    watched.save()
    assert watched.lags == {"read": 15, "handled": 15, "committed": 15}


def test_lags_are_those_of_the_events_if_tokens_have_no_time() -> None:
    watched = Watched(handlers=0)
    watched.reply(batch([change(5, _id=ODD.document)]), 20)
    assert watched.lags == {"read": 15, "handled": 15}


@pytest.fixture(params=[token, lambda n: ODD], ids=["readable tokens", "opaque tokens"])
def idle(request: pytest.FixtureRequest) -> Watched:
    """Event 0, handled and saved; then empty replies until 3600, which are not saved."""
    idle = Watched()
    (place,), _ = idle.reply(batch([change(0)]), 0)
    idle.finish(place)
    idle.save()
    idle.status.enter(WatcherState.CAUGHT_UP)
    for n in range(10, 3601, 10):
        idle.reply(batch([], request.param(n), time(n)), n)
    return idle


def test_lags_of_an_idle_scope_are_the_waiting_time_of_the_next_change(idle: Watched) -> None:
    idle.save()
    (place,), _ = idle.reply(batch([change(3605)]), 3607)
    assert idle.lags == {"read": 2, "handled": 7, "committed": 7}
    idle.finish(place)
    assert idle.lags == {"read": 2, "handled": 2, "committed": 7}
    idle.save()
    assert idle.lags == {"read": 2, "handled": 2, "committed": 2}


def test_lags_of_an_idle_scope_that_stops_reading_are_those_of_its_checkpoint(
    idle: Watched,
) -> None:
    """So an idle scope whose store fails is seen approaching the end of the oplog."""
    idle.clock.answered(time(3700))
    for state in (WatcherState.BACKING_OFF, WatcherState.HALTED):
        idle.status.enter(state, "the store is gone")
        assert idle.lags == {"read": 100, "handled": 100, "committed": 3700}


def test_lags_of_an_idle_scope_are_the_waiting_time_of_a_change_without_a_place(
    idle: Watched,
) -> None:
    """It waits for budget that other scopes hold, or for the rest of its transaction."""
    idle.save()
    idle.status.stream.answered(time(3607))
    assert idle.status.watermark is not None
    idle.status.watermark.read(batch([change(3605)]))
    assert idle.lags == {"read": 2, "handled": 7, "committed": 7}


@pytest.mark.parametrize("state", [WatcherState.WAITING, WatcherState.HALTED])
def test_a_clock_beside_the_stream_lets_its_lag_grow_while_it_does_not_read(
    state: WatcherState,
) -> None:
    watched = Watched(Position(PositionKind.EVENT, token(0), token(0), time(0)))
    watched.save()
    watched.reply(batch([change(5)]), 20)
    watched.status.enter(state)
    watched.clock.answered(time(1000))
    assert watched.lags == {"read": 995, "handled": 1000, "committed": 1000}


def test_a_clock_beside_the_stream_tells_of_a_scope_that_never_got_to_read() -> None:
    """Its history may be lost already; its lag is known without a stream."""
    watched = Watched()
    watched.status.checkpoint = behind(Position(PositionKind.IDLE, None, token(5), time(5)))
    watched.status.enter(WatcherState.HALTED, "history lost")
    assert watched.lags == {}
    watched.clock.answered(time(65))
    assert watched.lags == {"committed": 60}


FOLLOWING = frozenset({WatcherState.STREAMING, WatcherState.CAUGHT_UP})


@pytest.fixture
def watched() -> Watched:
    """Idle, saved and caught up at 20; then the server is gone."""
    watched = Watched()
    watched.reply(batch([], token(20)), 20)
    watched.save()
    watched.status.enter(WatcherState.CAUGHT_UP)
    assert watched.lags == {"read": 0, "handled": 0, "committed": 0}
    return watched


@pytest.mark.parametrize("state", sorted(set(WatcherState) - {"stopped"}))
def test_lags_of_an_unreachable_server_grow_in_every_state(
    watched: Watched, state: WatcherState
) -> None:
    watched.status.enter(state, "no primary")
    for seconds in (3, 4, 20, 60, 600):
        watched.elapsed = seconds
        assert watched.lags == dict.fromkeys(("read", "handled", "committed"), seconds)


@pytest.mark.parametrize("state", sorted(FOLLOWING))
def test_lags_are_zero_while_an_answer_may_still_come(
    watched: Watched, state: WatcherState
) -> None:
    watched.status.enter(state)
    watched.elapsed = SILENCE_SECONDS
    assert watched.lags == {"read": 0, "handled": 0, "committed": 0}


def test_lags_grow_at_once_for_a_stream_that_waits_long_for_changes(watched: Watched) -> None:
    """The stream's own answer is not due for a minute, but no other answer comes either."""
    watched.status.stream.await_seconds = 60
    watched.elapsed = 3
    assert watched.lags["read"] == 3


def test_lags_of_an_unreachable_server_end_with_the_next_answer(watched: Watched) -> None:
    """An election of a few seconds shows as a few seconds."""
    watched.status.enter(WatcherState.STARTING, "resumes")
    watched.elapsed = 4
    assert watched.lags["read"] == 4
    watched.reply(batch([], token(24)), 24)
    watched.status.enter(WatcherState.CAUGHT_UP)
    assert watched.lags["read"] == 0


def test_lags_of_a_silent_stream_follow_the_server_that_answers_others(watched: Watched) -> None:
    """The member that the stream reads from hangs, and the primary answers."""
    watched.elapsed = 10
    watched.clock.answered(time(27))
    assert watched.lags == {"read": 7, "handled": 7, "committed": 7}


def test_lags_of_an_idle_stream_ignore_the_server_until_its_answer_is_late(
    watched: Watched,
) -> None:
    watched.elapsed = watched.status.stream.await_seconds + LATE_SECONDS
    watched.clock.answered(time(30))
    assert watched.lags["read"] == 0


@pytest.mark.parametrize(
    ("reply", "opening", "state"),
    [
        (batch([], token(10)), False, WatcherState.CAUGHT_UP),
        # The server scans old oplog: an empty reply does not mean the end of it (field notes, 16).
        (batch([], token(9)), False, WatcherState.CATCHING_UP),
        (batch([change(20)]), False, WatcherState.STREAMING),
        # The reply to an aggregate comes before any scan.
        (batch([], token(19)), True, WatcherState.CATCHING_UP),
        (batch([], token(20)), True, WatcherState.CAUGHT_UP),
        (batch([], ODD), True, WatcherState.CAUGHT_UP),
    ],
)
def test_the_state_after_a_reply(reply: RawBatch, opening: bool, state: WatcherState) -> None:
    assert Watched().reply(reply, 20, opening=opening)[1] is state


def test_the_status_tells_position_and_checkpoint_without_a_whole_token() -> None:
    watched = Watched(handlers=0)
    watched.reply(batch([change(5), change(6)], token(7)), 20)
    watched.save()
    watched.status.errors.note("the server went away")
    text = json.dumps(status_document(watched.status))
    assert json.loads(text)["position"] == {
        "kind": "event",
        "token": token(7).digest,
        "cluster_time": "2025-11-30T10:53:26+00:00",
        "single_changes": 0,
    }
    assert json.loads(text)["checkpoint"]["epoch"] == 3
    assert json.loads(text)["last_error"] == "the server went away"
    for n in (5, 6, 7):
        assert token(n).document["_data"] not in text


def test_gauges_count_what_is_in_flight() -> None:
    watched = Watched()
    whole = batch([change(5), change(6)])
    watched.reply(whole, 20)
    watched.save()
    found = gauges(watched.status)
    assert (found.state, found.in_flight_events) == ("starting", 2)
    assert found.in_flight_bytes == whole.size
    assert found.lags == watched.lags
    assert found.checkpoint_saved_at is not None
    assert found.last_round_trip is not None


def test_a_member_that_applies_nothing_is_behind_the_set_and_named() -> None:
    """It answers as before, and its own time says nothing."""
    watched = Watched()
    watched.status.enter(WatcherState.CAUGHT_UP)
    watched.status.stream.member = "db2:27017"
    with capture_logs() as logs:
        for n in (100, 103, 124, 140):
            watched.clock.answered(time(n))
            _, state = watched.reply(batch([], token(100)), 100)
            watched.status.enter(state)
            assert watched.lags["read"] == n - 100
        assert watched.status.state is WatcherState.CATCHING_UP
        assert "db2:27017, is 40 s behind the set" in watched.status.reason
        _, state = watched.reply(batch([], token(140)), 140)
        watched.status.enter(state)
    assert (watched.lags["read"], watched.status.state) == (0, WatcherState.CAUGHT_UP)
    assert watched.status.reason == ""
    changes = [(log["event"], log["member"]) for log in logs if "member" in log]
    assert changes == [("member.fallen_behind", "db2:27017"), ("member.caught_up", "db2:27017")]


@pytest.mark.parametrize(
    ("now", "begin", "risk"),
    [
        (170, 40, ""),
        (177, 40, "changes are lost in about 23 s"),
        (220, 40, "changes are lost in about 0 s"),
        (220, 101, "changes are lost (see on_history_lost)"),
    ],
)
def test_a_paused_scope_says_when_the_oplog_leaves_it_behind(
    now: int, begin: int, risk: str
) -> None:
    watched = Watched(Position(PositionKind.IDLE, token(100), token(100), time(100)))
    watched.save()
    watched.clock.answered(time(now))
    watched.clock.oplog = OplogRange(time(begin), 100.0)
    watched.status.enter(WatcherState.PAUSED, "paused by ann")
    assert watched.status.reason.endswith(risk or "paused by ann")
    watched.status.enter(WatcherState.CAUGHT_UP)
    assert watched.status.reason == ""
