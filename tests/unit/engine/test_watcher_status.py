"""What a watcher says of itself: state, lags, position."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from service.engine.in_flight import InFlight, Mark
from service.engine.state import WatcherState, WatcherStatus
from service.model import Batch, Checkpoint, CheckpointKind, ResumeToken, Scope
from tests.unit.engine.changes import NOTHING, batch, change, time, token

ODD = ResumeToken.of({"_data": "not of mongod"})


class Watched:
    """A status that is told what a watcher's life would tell it."""

    def __init__(self, start: Mark = NOTHING) -> None:
        self.status = WatcherStatus(Scope("orders", "shop", "orders"))
        self.status.in_flight = InFlight(start)

    def reply(self, whole: Batch, server: int | None, handlers: int = 1) -> Any:
        """One reply at the server's time ``server``; returns its places and the state."""
        assert self.status.in_flight is not None
        self.status.round_trip(None if server is None else time(server))
        state = self.status.read(whole)
        return self.status.in_flight.admit(whole, handlers), state

    def save(self) -> None:
        assert self.status.in_flight is not None
        mark = self.status.in_flight.mark
        self.status.checkpoint = checkpoint(mark)

    @property
    def lags(self) -> dict[str, float]:
        return self.status.lags


def checkpoint(mark: Mark) -> Checkpoint:
    return Checkpoint(
        "orders",
        mark.kind,
        mark.event_token,
        mark.high_water,
        mark.cluster_time,
        "rs0/abc",
        "c0ffee",
        3,
        7,
        datetime.now(UTC),
    )


class TestLags:
    def test_are_absent_while_unknown(self) -> None:
        """Never 0: a consumer that has read nothing yet is not up to date."""
        assert WatcherStatus(Scope("orders")).lags == {}
        assert Watched().lags == {}

    def test_without_the_servers_time_are_absent(self) -> None:
        watched = Watched()
        watched.reply(batch([change(1)]), None)
        assert watched.lags == {}

    def test_of_an_event_are_those_of_its_time_by_stage(self) -> None:
        watched = Watched(Mark(CheckpointKind.EVENT, token(0), token(0), time(0)))
        (place,), _ = watched.reply(batch([change(5)]), 20)
        assert watched.lags == {"read": 15, "handled": 20}
        assert watched.status.in_flight is not None
        watched.status.in_flight.finish(place)
        assert watched.lags == {"read": 15, "handled": 15}
        watched.save()
        assert watched.lags == {"read": 15, "handled": 15, "committed": 15}

    def test_handled_is_unknown_while_the_first_events_are_not_handled(self) -> None:
        watched = Watched()
        watched.reply(batch([change(5)]), 20)
        assert watched.lags == {"read": 15}

    def test_committed_stays_behind_until_the_save(self) -> None:
        watched = Watched(Mark(CheckpointKind.EVENT, token(0), token(0), time(0)))
        watched.save()
        (place,), _ = watched.reply(batch([change(5)]), 20)
        assert watched.lags == {"read": 15, "handled": 20, "committed": 20}
        assert watched.status.in_flight is not None
        watched.status.in_flight.finish(place)
        assert watched.lags == {"read": 15, "handled": 15, "committed": 20}

    def test_of_an_idle_scope_that_is_saved_are_none(self) -> None:
        watched = Watched()
        watched.reply(batch([], token(20)), 20)
        watched.save()
        assert watched.lags == {"read": 0, "handled": 0, "committed": 0}

    def test_of_an_idle_scope_whose_tokens_tell_no_time_are_none(self) -> None:
        watched = Watched()
        watched.reply(batch([], ODD), 20)
        watched.save()
        assert watched.lags == {"read": 0, "handled": 0, "committed": 0}

    def test_of_events_whose_tokens_tell_no_time_are_those_of_the_events(self) -> None:
        watched = Watched()
        watched.reply(batch([change(5, _id=ODD.document)]), 20, handlers=0)
        assert watched.lags == {"read": 15, "handled": 15}

    def test_grow_when_the_server_goes_on_and_the_stream_does_not(self) -> None:
        watched = Watched()
        watched.reply(batch([], token(20)), 20)
        watched.status.round_trip(time(50))
        assert watched.lags["read"] == 30

    def test_are_never_negative(self) -> None:
        watched = Watched()
        watched.reply(batch([], token(25)), 20)
        assert watched.lags["read"] == 0

    def test_the_servers_time_never_goes_back(self) -> None:
        """After an election another member answers, which may be a little behind."""
        watched = Watched()
        watched.reply(batch([], token(20)), 20)
        watched.status.round_trip(time(10))
        watched.status.round_trip(None)
        assert watched.status.server_time == time(20)


class TestCaughtUp:
    def test_is_an_empty_reply_near_the_servers_time(self) -> None:
        assert Watched().reply(batch([], token(20)), 20)[1] is WatcherState.CAUGHT_UP
        assert Watched().reply(batch([], token(10)), 20)[1] is WatcherState.CAUGHT_UP

    def test_is_not_an_empty_reply_far_behind_it(self) -> None:
        """The server scans old oplog: an empty reply is not the end of it (field notes, 16)."""
        assert Watched().reply(batch([], token(9)), 20)[1] is WatcherState.STREAMING

    def test_is_not_a_reply_with_events(self) -> None:
        assert Watched().reply(batch([change(20)]), 20)[1] is WatcherState.STREAMING

    def test_is_an_empty_reply_of_which_nothing_else_is_known(self) -> None:
        assert Watched().reply(batch([], ODD), 20)[1] is WatcherState.CAUGHT_UP
        assert Watched().reply(batch([]), None)[1] is WatcherState.CAUGHT_UP


class TestState:
    def test_a_change_is_told_once(self) -> None:
        status = WatcherStatus(Scope("orders"))
        assert not status.enter(WatcherState.STARTING)
        assert status.enter(WatcherState.HALTED, "why")
        assert not status.enter(WatcherState.HALTED, "why")
        assert status.enter(WatcherState.HALTED, "why else")

    def test_its_time_is_that_of_the_change(self) -> None:
        status = WatcherStatus(Scope("orders"))
        before = status.since
        status.enter(WatcherState.STARTING)
        assert status.since == before
        status.enter(WatcherState.STREAMING)
        assert status.since >= before


class TestDocument:
    def test_before_anything_is_known_is_json(self) -> None:
        document = json.loads(json.dumps(WatcherStatus(Scope("orders")).document()))
        assert document["state"] == "starting"
        assert document["kind"] == "cluster"
        assert document["lag_seconds"] == {}
        for unknown in ("position", "checkpoint", "last_round_trip", "last_error"):
            assert document[unknown] is None

    def test_tells_position_and_checkpoint_without_a_whole_token(self) -> None:
        watched = Watched()
        watched.reply(batch([change(5), change(6)], token(7)), 20, handlers=0)
        watched.save()
        watched.status.failed("the server went away")
        text = json.dumps(watched.status.document())
        assert json.loads(text)["position"] == {
            "kind": "event",
            "token": token(7).digest,
            "cluster_time": "2025-11-30T10:53:26+00:00",
        }
        assert json.loads(text)["checkpoint"]["epoch"] == 3
        assert json.loads(text)["last_error"] == "the server went away"
        for n in (5, 6, 7):
            assert token(n).document["_data"] not in text

    @pytest.mark.parametrize(
        ("scope", "follows", "kind"),
        [
            (Scope("s", "shop", "orders"), "shop.orders", "collection"),
            (Scope("s", "shop"), "shop", "database"),
            (Scope("s"), "cluster", "cluster"),
        ],
    )
    def test_tells_what_is_followed(self, scope: Scope, follows: str, kind: str) -> None:
        document = WatcherStatus(scope).document()
        assert (document["follows"], document["kind"]) == (follows, kind)


def test_gauges_count_what_is_in_flight() -> None:
    watched = Watched()
    whole = batch([change(5), change(6)])
    watched.reply(whole, 20)
    watched.save()
    gauges = watched.status.gauges()
    assert (gauges.state, gauges.in_flight_events) == ("starting", 2)
    assert gauges.in_flight_bytes == whole.size
    assert gauges.lags == watched.lags
    assert gauges.checkpoint_saved_at is not None
    assert gauges.last_round_trip is not None
