"""Replays of a span of time to one handler: what is meant, and how far they are."""

from collections.abc import Mapping, Sequence
from typing import Any

from bson.timestamp import Timestamp

from tailrace.control.follower import require_replayable
from tailrace.control.outcome import ActionRefused
from tailrace.control.server_positions import (
    ServerPositions,
    end_of_second,
    moment,
    read_time,
)
from tailrace.engine import Watcher
from tailrace.event.key import read_key
from tailrace.model import Position, PositionKind, Scope
from tailrace.model.checkpoint import replay_to
from tailrace.model.replay import Replay, ReplayRequest


async def find_span(
    server: ServerPositions,
    since: str | None,
    to: str | None,
    collections: Sequence[str],
    keys: Sequence[str],
) -> ReplayRequest:
    """The changes that are meant, which the server still has; times and keys as text.

    Raises :class:`ActionRefused`.
    """
    for name in collections:
        _require_collection(server.scope, name)
    try:
        texts = tuple(read_key(key).text for key in keys)
    except ValueError as error:
        raise ActionRefused(400, f"keys: {error}") from error
    begin = read_time(since or "", "from")
    end = read_time(to, "to") if to is not None else None
    oplog = await server.oplog_times()
    oplog.require(begin, since or "", "from")
    until = oplog.now
    if end is not None:
        oplog.require(end, to or "", "to")
        until = min(until, end_of_second(end))
    if begin > until:
        message = f"the span ends at {moment(until)}, before it begins"
        raise ActionRefused(422, f"{message}: give a from that is not after to")
    await server.require(Position(PositionKind.IDLE, None, None, begin))
    return ReplayRequest(begin, until, tuple(collections), texts)


def _require_collection(scope: Scope, name: str) -> None:
    """A scope of several collections may have had any that the server does not have now."""
    if scope.collection is None and name:
        return
    if name not in (scope.collection, f"{scope.database}.{scope.collection}"):
        message = f"scope {scope.name!r} does not have the collection {name!a:.60}"
        raise ActionRefused(422, f"{message}: it has {scope.collection or scope.database or 'all'}")


def span_text(request: ReplayRequest) -> str:
    """The changes that are meant, for people."""
    of = f" of {', '.join(request.collections)}" if request.collections else ""
    keys = f" with the _id {', '.join(request.keys)}" if request.keys else ""
    return f"changes{of}{keys} from {moment(request.since)} to {moment(request.until)}"


def replay_document(watcher: Watcher, handler: str) -> Mapping[str, Any] | None:
    """The last replay to a handler, in JSON types; ``None`` if there was none."""
    replay, known = watcher.replays.last(handler), watcher.claim.of(replay_to(handler))
    if replay is None:
        return None
    running = watcher.replays.running.get(handler)
    if known is None or known.replay is None or known.replay.generation != replay.generation:
        reason = "" if running is not None else "it begins when the scope is followed"
        return {**_document(handler, replay), "reason": reason}
    at = known.position.cluster_time if known.position.token is not None else None
    document = _document(handler, replay, at)
    if known.halted:
        since = moment(at or replay.request.since)
        document |= {"state": "failed", "reason": f"{known.halted}; resume from {since}"}
    elif running is not None:
        document |= {"reason": running.status.explanation, "handled": running.span.handled}
    return document


def planned_document(handler: str, request: ReplayRequest, by: str) -> Mapping[str, Any]:
    """A replay that has not begun, in JSON types."""
    return _document(handler, Replay(request, 0, by))


def _document(handler: str, replay: Replay, at: Timestamp | None = None) -> dict[str, Any]:
    request = replay.request
    return {
        "handler": handler,
        "from": moment(request.since),
        "to": moment(request.until),
        "collections": list(request.collections),
        "keys": list(request.keys),
        "state": replay.state.value,
        "reason": "",
        "handled": replay.handled,
        "at": moment(min(at, request.until)) if at is not None else None,
    }


def find_handler(watcher: Watcher, name: str) -> str:
    """The handler of the scope with this name, if changes may come to it again.

    Raises :class:`ActionRefused`.
    """
    handlers = {routed.name: routed.handler for routed in watcher.plan.routed}
    if name not in handlers:
        message = f"scope {watcher.name!r} has no handler {name!a:.60}: choose one of "
        raise ActionRefused(422, message + ", ".join(handlers))
    require_replayable(watcher, handlers[name])
    return name
