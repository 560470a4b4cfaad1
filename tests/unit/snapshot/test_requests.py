"""Operators' requests for a scope's snapshots, before any of it is read."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest
from bson.timestamp import Timestamp
from structlog.testing import capture_logs

from tailrace.engine.plan.row_source import KnownSnapshots
from tailrace.errors import CommandFailed, ConnectionFailed, ScopeHalted
from tailrace.event.reply import Reply
from tailrace.model import Scope, SnapshotProgress
from tailrace.model.snapshot import SnapshotMode, SnapshotRequest, SnapshotState
from tailrace.snapshot.options import SnapshotOptions
from tailrace.snapshot.server import Find
from tailrace.snapshot.snapshots import Snapshots
from tests.snapshots import ordered
from tests.unit.engine.changes import until

TIME = Timestamp(9, 1)


class Gone:
    """A server that does not answer."""

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        raise ConnectionFailed("no primary")

    async def find(self, find: Find) -> Sequence[Reply]:
        raise ConnectionFailed("no primary")


def snapshots(**options: Any) -> Snapshots:
    return Snapshots(Scope("s", "shop"), Gone(), SnapshotOptions(**options))


def seen(of: Snapshots) -> SnapshotProgress:
    observed = of.observed()
    assert observed is not None
    return observed.progress


@pytest.mark.parametrize(
    ("options", "begin", "mode"),
    [
        ({"initial": True}, {"fresh": True, "gap": False}, SnapshotMode.INITIAL),
        ({"after_gap": True}, {"fresh": False, "gap": True}, SnapshotMode.GAP),
    ],
)
async def test_what_the_scope_needs_comes_before_what_was_asked_for(
    options: dict[str, bool], begin: dict[str, bool], mode: SnapshotMode
) -> None:
    """Otherwise documents would be missing forever: the requested snapshot may be only a part."""
    scope = snapshots(**options)
    assert ordered(scope, scope.start(("orders",), '{"a": 1}')) == ""
    assert seen(scope).mode is SnapshotMode.REQUESTED
    begun = scope.begin(KnownSnapshots(None, **begin))
    assert begun is not None
    assert (begun.mode, seen(scope)) == (mode, begun)


def test_a_snapshot_that_is_replaced_after_a_gap_is_logged() -> None:
    under_way = SnapshotProgress("5f3a", SnapshotMode.REQUESTED, SnapshotState.READING)
    with capture_logs() as logs:
        for stored in (under_way, replace(under_way, state=SnapshotState.DONE)):
            begun = snapshots(after_gap=True).begin(KnownSnapshots(stored, gap=True))
            assert begun is not None
            assert begun.mode is SnapshotMode.GAP
    (log,) = [log for log in logs if log["event"] == "snapshot.replaced"]
    assert (log["snapshot"], log["mode"]) == ("5f3a", "requested")
    assert log["reason"] == "one of mode gap begins"


async def test_requests_that_follow_one_another() -> None:
    scope = snapshots()
    scope.begin(KnownSnapshots(None))
    assert scope.observed() is None
    assert ordered(scope, scope.start()) == ""
    first = seen(scope).id
    assert first in ordered(scope, scope.start())
    assert "not paused" in ordered(scope, scope.pause(paused=False))
    assert ordered(scope, scope.pause(paused=True)) == ""
    assert "paused already" in ordered(scope, scope.pause(paused=True))
    (rows,) = await scope.read(TIME, briefly=False)
    assert rows.request
    assert (seen(scope).id, seen(scope).paused) == (first, True)
    assert ordered(scope, scope.cancel()) == ""
    assert ordered(scope, scope.start()) == "", "the one before is as good as over"
    assert seen(scope).id != first
    (rows,) = await scope.read(TIME, briefly=False)
    assert rows.progress(0) == seen(scope)
    assert (seen(scope).state, seen(scope).paused) == (SnapshotState.PLANNED, False)


async def test_the_reason_why_a_snapshot_cannot_read_is_shown() -> None:
    scope = snapshots(initial=True)
    scope.begin(KnownSnapshots(None, fresh=True))

    def trouble() -> str:
        observed = scope.observed()
        return observed.trouble if observed is not None else ""

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scope.ready)
        await until(lambda: "no primary" in trouble())
        tasks.cancel_scope.cancel()


async def test_a_stored_request_is_applied_by_one_process_once() -> None:
    request = SnapshotRequest("5f3a", True, ("orders",), paused=True)
    progress = None
    for process in range(3):
        scope = snapshots()
        scope.begin(KnownSnapshots(progress))
        scope.apply(7, request)
        assert (seen(scope).id, seen(scope).paused) == ("5f3a", True)
        found = await scope.read(TIME, briefly=False)
        assert len(found) == (0 if process else 1)
        progress = seen(scope)
        assert (progress.collections, progress.observed_generation) == (("orders",), 7)


@pytest.mark.parametrize("over", [True, False])
async def test_a_change_of_a_snapshot_begins_it_only_for_those_who_lack_it(over: bool) -> None:
    """A handler that had another one since has this one behind it: resumed, it stays so."""
    resumed = SnapshotRequest("5f3a", True, since=7)
    state = SnapshotState.DONE if over else SnapshotState.READING
    last = SnapshotProgress("c0de", SnapshotMode.REQUESTED, state, observed_generation=8)
    for observed, then in ((8, "c0de"), (6, "5f3a")):
        scope = snapshots()
        begun = replace(last, observed_generation=observed)
        scope.begin(KnownSnapshots(begun))
        scope.apply(9, resumed)
        assert seen(scope).id == then


@pytest.mark.parametrize(
    ("options", "begin"),
    [({"initial": True}, {"fresh": True, "gap": False}), ({"after_gap": True}, {"gap": True})],
)
async def test_a_request_that_a_snapshot_of_the_scope_replaces_is_not_applied_later(
    options: dict[str, bool], begin: dict[str, bool]
) -> None:
    scope, request = snapshots(**options), SnapshotRequest("5f3a", True, ("orders",))
    with capture_logs() as logs:
        own = scope.begin(KnownSnapshots(None, **begin, generation=7))
    assert [log["event"] for log in logs] == ["snapshot.request_dropped"]
    for _ in range(2):
        scope.apply(7, request)
        assert seen(scope) == own
        scope = snapshots(**options)
        scope.begin(KnownSnapshots(own, generation=7))


async def test_a_request_for_a_snapshot_that_is_not_stored_is_forgotten() -> None:
    """For example when the checkpoint was lost or reset before the request was saved."""
    scope = snapshots()
    scope.begin(KnownSnapshots(None))
    assert ordered(scope, scope.start()) == ""
    await scope.read(TIME, briefly=False)
    assert ordered(scope, scope.pause(paused=True)) == ""
    assert scope.begin(KnownSnapshots(None)) is None
    assert not scope.active
    assert await scope.read(TIME, briefly=False) == []


async def test_nothing_is_kept_of_a_scope_that_another_process_follows() -> None:
    """A request not yet in the stream would be applied when the scope comes back, or twice."""
    scope = snapshots(initial=True)
    scope.begin(KnownSnapshots(None, fresh=True))
    scope.leave()
    assert scope.observed() is None
    assert ordered(scope, scope.start()) == ""
    scope.leave()
    assert (scope.observed(), scope.active) == (None, False)


class Refuses(Gone):
    """A server that refuses everything, as it does a wrong filter, or a user without a right."""

    def __init__(self, code: int) -> None:
        self._error = CommandFailed("no", code=code)

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        raise self._error


def refused(code: int = 2, **options: Any) -> tuple[Snapshots, SnapshotProgress]:
    """The snapshot with which a scope began, with options that are perhaps others by now."""
    stored = snapshots(initial=True, filter='{"a": 1}').begin(KnownSnapshots(None, fresh=True))
    assert stored is not None
    scope = Snapshots(Scope("s", "shop"), Refuses(code), SnapshotOptions(**options))
    assert scope.begin(KnownSnapshots(stored)) == stored
    return scope, stored


async def test_a_snapshot_that_was_refused_begins_again_with_the_corrected_filter() -> None:
    scope, before = refused(initial=True, filter='{"b": 1}')
    await scope.ready()
    (rows,) = await scope.read(TIME, briefly=False)
    now = rows.progress(0)
    assert (rows.request, now.filter, now.state) == (True, '{"b": 1}', SnapshotState.PLANNED)
    assert now.id != before.id
    with pytest.raises(ScopeHalted, match="correct the scope's snapshot"):
        await scope.ready()


async def test_a_snapshot_that_was_refused_ends_if_the_scope_has_none_any_more() -> None:
    scope, before = refused()
    await scope.ready()
    (rows,) = await scope.read(TIME, briefly=False)
    assert (rows.progress(0).id, rows.progress(0).state) == (before.id, SnapshotState.CANCELLED)
    assert not scope.active


async def test_a_snapshot_of_a_user_who_lacks_a_right_waits_for_it() -> None:
    """It is no reason to read other documents than were to be read."""
    scope, _ = refused(code=13, filter='{"b": 1}')
    with pytest.raises(CommandFailed):
        await scope.ready()
