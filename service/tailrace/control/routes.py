"""The table of the HTTP API: every path, who may ask, what it takes, and what answers it."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.control.bodies import (
    Body,
    HandlerQuery,
    LetterBody,
    LettersBody,
    LettersQuery,
    OrderBody,
    ReloadBody,
    ReplayBody,
    SeekBody,
    SnapshotBody,
    WhyQuery,
)
from tailrace.control.control import Control
from tailrace.control.outcome import Done
from tailrace.control.skipping import SkipBody
from tailrace.observe.exchange import Pace

Values = Mapping[str, str]
"""The values of the parts of a path in braces."""


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """``path`` has parts in braces. ``act`` is an action, which needs the right to change; ``read``
    asks the store, and shows what only operators may see. Without both, the route is a view of the
    process, which :mod:`tailrace.control.api` answers.

    ``summary`` is a sentence for the OpenAPI document and docs/http.md. ``takes``: a body of JSON,
    or a query.
    """

    method: str
    path: str
    summary: str
    act: Callable[[Control, Values, Any, str], Awaitable[Done]] | None = None
    takes: type[Body] | None = None
    pace: Pace = Pace.WAITS
    gives: str = "application/json"
    read: Callable[[Control, Values, Any], Awaitable[Mapping[str, Any] | str]] | None = None

    @property
    def name(self) -> str:
        """The action: the last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def status(self) -> int:
        """The status of its answer if all is well."""
        return 202 if self.method == "POST" else 200

    def values(self, path: str) -> Values | None:
        """The values in a path; ``None`` if it is another one."""
        found = re.fullmatch(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(self.path)), path)
        return found.groupdict() if found else None


async def _restart(control: Control, values: Values, body: OrderBody, by: str) -> Done:
    return await control.restart(values["name"], body, by)


async def _pause(control: Control, values: Values, body: OrderBody, by: str) -> Done:
    return await control.pause(values["name"], body, by)


async def _resume(control: Control, values: Values, body: OrderBody, by: str) -> Done:
    return await control.resume(values["name"], body, by)


async def _seek(control: Control, values: Values, body: SeekBody, by: str) -> Done:
    return await control.seek(values["name"], body, by)


async def _skip(control: Control, values: Values, body: SkipBody, by: str) -> Done:
    return await control.skip(values["name"], body, by)


async def _snapshot(control: Control, values: Values, body: SnapshotBody, by: str) -> Done:
    return await control.snapshot(values["name"], body, by)


async def _why(control: Control, values: Values, query: WhyQuery) -> Mapping[str, Any]:
    return await control.why(values["name"], query)


async def _reload(control: Control, values: Values, body: ReloadBody, by: str) -> Done:
    return await control.reload(dry_run=body.dry_run)


async def _positions(control: Control, values: Values, query: HandlerQuery) -> Mapping[str, Any]:
    return await control.positions(values["name"], query)


async def _replay(control: Control, values: Values, body: ReplayBody, by: str) -> Done:
    return await control.replay(values["name"], body, by)


async def _last_replay(control: Control, values: Values, query: HandlerQuery) -> Mapping[str, Any]:
    return await control.last_replay(values["name"], query)


async def _letters(control: Control, values: Values, query: LettersQuery) -> str:
    return await control.dead_letters(query)


async def _replay_letter(control: Control, values: Values, body: LetterBody, by: str) -> Done:
    return await control.replay_letter(values["id"], body, by)


async def _replay_letters(control: Control, values: Values, body: LettersBody, by: str) -> Done:
    return await control.replay_letters(body, by)


async def _discard_letters(control: Control, values: Values, body: LettersBody, by: str) -> Done:
    return await control.discard_letters(body, by)


async def _discard_letter(control: Control, values: Values, body: LetterBody, by: str) -> Done:
    return await control.discard_letter(values["id"], body, by)


_IN_TURN: Mapping[str, Any] = {"pace": Pace.IN_TURN}

ROUTES = (
    HttpRoute("GET", "/", "The status page.", gives="text/html", **_IN_TURN),
    HttpRoute("GET", "/metrics", "Prometheus metrics.", gives="text/plain", **_IN_TURN),
    HttpRoute(
        "GET",
        "/livez",
        "Whether a restart of the process would not help: 200, or 503 with the reasons.",
        pace=Pace.AT_ONCE,
        gives="text/plain",
    ),
    HttpRoute(
        "GET",
        "/readyz",
        "Whether changes flow in every scope: 200, or 503 with the reasons.",
        pace=Pace.AT_ONCE,
        gives="text/plain",
    ),
    HttpRoute("GET", "/status", "Every scope with its state, position and lags.", **_IN_TURN),
    HttpRoute(
        "GET",
        "/history",
        "The last quarter of an hour: changes read and lag of each scope, every 5 seconds.",
        **_IN_TURN,
    ),
    HttpRoute("GET", "/openapi.json", "This API as an OpenAPI 3.1 document.", **_IN_TURN),
    HttpRoute(
        "POST",
        "/scopes/{name}/restart",
        "Restarts what is halted of a scope, or one handler, from its checkpoint.",
        _restart,
        OrderBody,
    ),
    HttpRoute(
        "POST",
        "/scopes/{name}/pause",
        "Drains and saves a scope, or one handler, and hands over nothing more until it is "
        "resumed, whichever process follows it.",
        _pause,
        OrderBody,
    ),
    HttpRoute(
        "POST",
        "/scopes/{name}/resume",
        "Lets a paused scope continue with all its handlers, or one handler.",
        _resume,
        OrderBody,
    ),
    HttpRoute(
        "POST",
        "/scopes/{name}/seek",
        "Lets a scope, or one handler, continue at another position: at a time, after a token, or "
        "where it was.",
        _seek,
        SeekBody,
    ),
    HttpRoute(
        "POST",
        "/scopes/{name}/skip",
        "Sets aside the next change of a scope, if the server cannot send it, records the gap, and "
        "lets the scope go on after it.",
        _skip,
        SkipBody,
    ),
    HttpRoute(
        "GET",
        "/scopes/{name}/positions",
        "Where the handlers of a scope are and were, the latest first: positions of days.",
        takes=HandlerQuery,
        read=_positions,
    ),
    HttpRoute(
        "GET",
        "/scopes/{name}/why",
        "What became of the last changes of a document, for each handler.",
        takes=WhyQuery,
        read=_why,
    ),
    HttpRoute(
        "POST",
        "/scopes/{name}/snapshot",
        "Starts, pauses, resumes or cancels the snapshot of a scope, or of one handler.",
        _snapshot,
        SnapshotBody,
        pace=Pace.IN_TURN,
    ),
    HttpRoute(
        "POST",
        "/scopes/{name}/replay",
        "Hands the changes of a span of time to one handler again, beside the scope. It goes on "
        "after a restart.",
        _replay,
        ReplayBody,
    ),
    HttpRoute(
        "GET",
        "/scopes/{name}/replay",
        "How far the last replay of a span of time is, to any handler or to this one.",
        takes=HandlerQuery,
        read=_last_replay,
    ),
    HttpRoute(
        "GET",
        "/dead-letters",
        "A page of the dead letters that wait, oldest first, with their events. If there are more, "
        "`next` is the `after` of the next page.",
        takes=LettersQuery,
        read=_letters,
    ),
    HttpRoute(
        "POST",
        "/dead-letters/replay",
        "Hands the dead letters that are meant, and all others of their documents, to their "
        "handlers again, in order; without a filter, all. To a handler that stores its own "
        "position comes a snapshot of their documents in their place. If that takes longer than 8 "
        "seconds, `next` is the `after` to go on with.",
        _replay_letters,
        LettersBody,
    ),
    HttpRoute(
        "POST",
        "/dead-letters/discard",
        "Removes the dead letters that are meant: their events are never handled. It needs a "
        "filter, and goes on as a replay does.",
        _discard_letters,
        LettersBody,
    ),
    HttpRoute(
        "POST",
        "/dead-letters/{id}/replay",
        "Hands a dead letter, and all others of its document, to its handler again, in order. If "
        "that takes longer than 8 seconds, `next` is the letter to ask for then.",
        _replay_letter,
        LetterBody,
    ),
    HttpRoute(
        "POST",
        "/dead-letters/{id}/discard",
        "Removes a dead letter: its event is never handled.",
        _discard_letter,
        LetterBody,
    ),
    HttpRoute(
        "POST",
        "/reload",
        "Reads the configuration again, and begins anew only what has changed; says what that is.",
        _reload,
        ReloadBody,
    ),
)


def matching(routes: Iterable[HttpRoute], path: str) -> list[tuple[HttpRoute, Values]]:
    """The routes of a path, by whatever method, with the values in it."""
    found = ((route, route.values(path)) for route in routes)
    return [(route, values) for route, values in found if values is not None]
