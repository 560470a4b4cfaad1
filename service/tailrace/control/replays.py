"""Replays of a span of time to one handler: what is meant, and how far they are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
from bson.timestamp import Timestamp

from tailrace.control.bodies import ReplayBody
from tailrace.control.follower import require_followed, require_here, require_replayable
from tailrace.control.orders import give
from tailrace.control.outcome import ActionRefused, Done
from tailrace.control.server_positions import (
    ServerPositions,
    end_of_second,
    moment,
    read_time,
)
from tailrace.engine import OrderStore, Watcher
from tailrace.event.key import read_key
from tailrace.model import Position, PositionKind, Scope
from tailrace.model.checkpoint import replay_to
from tailrace.model.replay import Replay, ReplayRequest


async def find_span(server: ServerPositions, body: ReplayBody) -> ReplayRequest:
    """The changes that are meant, which the server still has. Raises :class:`ActionRefused`."""
    for each in body.collections:
        _require_collection(server.scope, each)
    try:
        keys = tuple(read_key(each).text for each in body.keys)
    except ValueError as error:
        raise ActionRefused(400, f"keys: {error}") from error
    since = read_time(body.since or "", "from")
    to = read_time(body.to, "to") if body.to is not None else None
    kept = await server.kept()
    kept.require(since, body.since or "", "from")
    until = kept.now
    if to is not None:
        kept.require(to, body.to or "", "to")
        until = min(until, end_of_second(to))
    if since > until:
        message = f"the span ends at {moment(until)}, before it begins"
        raise ActionRefused(422, f"{message}: give a from that is not after to")
    await server.require(Position(PositionKind.IDLE, None, None, since))
    return ReplayRequest(since, until, tuple(body.collections), keys)


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
    if known is None or known.replay is None or known.replay.number != replay.number:
        return {**_document(handler, replay), "reason": "it begins when the scope is followed"}
    at = known.position.cluster_time if known.position.token is not None else None
    document = _document(handler, replay, at)
    if known.halted:
        since = moment(at or replay.request.since)
        document |= {"state": "failed", "reason": f"{known.halted}; from {since} it can go on"}
    elif running is not None:
        document |= {"reason": running.status.explanation, "handled": running.span.handled}
    return document


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
    found = {each.name: each.handler for each in watcher.plan.routed}
    if name not in found:
        message = f"scope {watcher.name!r} has no handler {name!a:.60}: choose one of "
        raise ActionRefused(422, message + ", ".join(found))
    require_replayable(watcher, found[name])
    return name


@dataclass(slots=True)
class ReplayOrders:
    """Orders for replays, which ``orders`` keeps."""

    orders: OrderStore
    _lock: anyio.Lock = field(default_factory=anyio.Lock)
    """Of two requests at once, one is refused."""

    async def ask(
        self, watcher: Watcher, server: ServerPositions, body: ReplayBody, by: str
    ) -> Done:
        """Begins a replay beside the scope, or cancels it. Raises :class:`ActionRefused`."""
        require_here(watcher)
        if body.cancel:
            return await self._cancel(watcher, body.handler, by)
        if body.since is None or body.handler is None:
            raise ActionRefused(400, "give from and handler, or cancel")
        handler, scope = find_handler(watcher, body.handler), watcher.name
        request = await find_span(server, body)
        effect = f"scope {scope!r}: {span_text(request)} come again, to {handler}"
        if body.dry_run:
            details = _document(handler, Replay(request, 0, by))
            return Done(f"{effect}. Dry run: nothing was handed over", details=details)
        async with self._lock:
            if watcher.replays.is_wanted(handler):
                message = f"scope {scope!r}: a replay is running: wait for its end, or cancel it"
                raise ActionRefused(409, message)
            require_followed(watcher)
            given = await give(self.orders, scope, by, {"replay": request}, handler)
            watcher.obey(given.order)
        message = f"{effect}; GET /scopes/{scope}/replay shows how far it is"
        since, until = moment(request.since), moment(request.until)
        return Done(message, since, until, replay_document(watcher, handler) or {})

    async def _cancel(self, watcher: Watcher, handler: str | None, by: str) -> Done:
        names = [each.name for each in watcher.plan.routed if handler in (None, each.name)]
        running = [name for name in names if watcher.replays.is_wanted(name)]
        if not running:
            raise ActionRefused(409, f"scope {watcher.name!r}: no replay is running")
        for name in running:
            given = await give(self.orders, watcher.name, by, {"replay": None}, name)
            watcher.obey(given.order)
        message = f"scope {watcher.name!r}: its replay is cancelled"
        return Done(message, "running", "cancelled", {"handlers": running})
