"""Hands the changes of a span of time to one handler again, and shows how far that is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from tailrace.control.action import Action
from tailrace.control.bodies import Body, HandlerQuery, Metavar
from tailrace.control.outcome import ActionRefused, Done

if TYPE_CHECKING:
    from tailrace.control.control import Control
    from tailrace.engine import Watcher


class ReplayBody(Body):
    """Hands the changes of a span of time to one handler again, beside the scope. It goes on after
    a restart."""

    since: Annotated[str | None, Metavar("TIME")] = Field(default=None, alias="from")
    """A time in ISO 8601 with its zone: changes from that second on."""
    to: Annotated[str | None, Metavar("TIME")] = None
    """Changes up to this time and in its second; without one, up to now."""
    handler: Annotated[str | None, Metavar("NAME")] = None
    """The handler that gets them, which must be one of the scope."""
    collections: Annotated[list[str], Metavar("NAME")] = Field(default=[], max_length=1000)
    """Only changes of these collections (`name` or `database.name`); without any, all."""
    keys: Annotated[list[str], Metavar("JSON")] = Field(default=[], max_length=100)
    """Only changes of the documents with these `_id`s, each as Extended JSON; without any, all."""
    dry_run: bool = False
    """Only say what would be replayed."""
    cancel: bool = False
    """End the replay that is running."""


class LastReplayQuery(HandlerQuery):
    """How far the last replay of a span of time is, to any handler or to this one."""


async def _replay(control: Control, scope: str, body: ReplayBody, by: str) -> Done:
    """Begins a replay beside the scope, or cancels it."""
    from tailrace.control import replays
    from tailrace.control.desired_state import apply_change
    from tailrace.control.follower import require_followed, require_here, require_loaded
    from tailrace.control.server_positions import moment

    subject = control.subject(scope)
    watcher = subject.watcher
    require_here(watcher)
    if body.cancel:
        return await _cancel(control, watcher, body.handler, by)
    if body.since is None or body.handler is None:
        raise ActionRefused(400, "give from and handler, or cancel")
    handler = replays.find_handler(watcher, body.handler)
    async with control.positions(subject) as server:
        span = await replays.find_span(server, body.since, body.to, body.collections, body.keys)
    effect = f"scope {scope!r}: {replays.span_text(span)} come again, to {handler}"
    if body.dry_run:
        details = replays.planned_document(handler, span, by)
        return Done(f"{effect}. Dry run: nothing was handed over", details=details)
    async with control.locks[f"replay of {scope}"]:  # of two requests at once, one is refused
        require_followed(watcher)
        require_loaded(watcher)
        if watcher.replays.is_wanted(handler):
            message = f"scope {scope!r}: a replay is running: wait for its end, or cancel it"
            raise ActionRefused(409, message)
        await apply_change(control.desired_states, watcher, by, {"replay": span}, handler)
    message = f"{effect}; GET /scopes/{scope}/replay shows how far it is"
    details = replays.replay_document(watcher, handler) or {}
    return Done(message, moment(span.since), moment(span.until), details)


async def _cancel(control: Control, watcher: Watcher, handler: str | None, by: str) -> Done:
    from tailrace.control.desired_state import apply_change
    from tailrace.control.follower import require_loaded

    require_loaded(watcher)
    names = [each.name for each in watcher.plan.routed if handler in (None, each.name)]
    running = [name for name in names if watcher.replays.is_wanted(name)]
    if not running:
        raise ActionRefused(409, f"scope {watcher.name!r}: no replay is running")
    for name in running:
        await apply_change(control.desired_states, watcher, by, {"replay": None}, name)
    message = f"scope {watcher.name!r}: its replay is cancelled"
    return Done(message, "running", "cancelled", {"handlers": running})


async def _last_replay(
    control: Control, scope: str, query: HandlerQuery, by: str
) -> Mapping[str, Any]:
    from tailrace.control.follower import require_here, require_loaded
    from tailrace.control.replays import replay_document

    subject = control.subject(scope, query.handler)
    watcher, last = subject.watcher, {}
    require_here(watcher)
    require_loaded(watcher)
    for name in subject.handlers:
        if (replay := watcher.replays.last(name)) is not None:
            last[replay.generation] = replay_document(watcher, name)
    return {"scope": scope, "replay": last[max(last)] if last else None}


REPLAY = Action("POST", "/scopes/{name}/replay", ReplayBody, _replay)
LAST_REPLAY = Action("GET", "/scopes/{name}/replay", LastReplayQuery, _last_replay)
