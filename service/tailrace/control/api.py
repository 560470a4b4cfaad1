"""Answers requests by the table of routes: 404 and 405, rights, views, actions, and their log."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog
from anyio import CapacityLimiter, to_thread
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from tailrace.control.action import Action, Route, Values, View, values_in
from tailrace.control.bodies import read_body
from tailrace.control.control import Control
from tailrace.control.openapi import document
from tailrace.control.outcome import ActionRefused, Done
from tailrace.control.routes import routes
from tailrace.observe.access import Access, Refusal
from tailrace.observe.exchange import Answer, Call, Request, line
from tailrace.observe.page import PAGE, POLICY
from tailrace.observe.redaction import redacted

_STARTING = "the service is starting: try again when /readyz answers 200"


class _Values(Collector):
    """The values of one scrape, as the encoders take them."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Sequence[Metric]:
        """All of them."""
        return self._families


@dataclass(frozen=True, slots=True)
class Health:
    """What the process shows of itself.

    ``alive`` and ``ready`` return the reasons why not; an empty list means yes. ``degraded``
    returns what waits for an operator although the service is ready.
    """

    alive: Callable[[], list[str]]
    ready: Callable[[], list[str]]
    degraded: Callable[[], list[str]]
    status: Callable[[], Mapping[str, Any]]
    history: Callable[[], Mapping[str, Any]]


@dataclass(slots=True)
class Api:
    """The application of :class:`tailrace.observe.http.HttpServer`. ``access`` may be replaced.

    Without a ``control`` the service is starting.
    """

    health: Health
    registry: CollectorRegistry
    access: Access
    control: Control | None = None
    routes: Sequence[Route] = field(default_factory=routes)
    encoding: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(1))
    """Of its own: handlers may hold every thread of the others."""

    def find(self, request: Request) -> Answer | Call:
        """Refuses a request, or says how it is answered."""
        if refusal := self.access.stranger(request.headers):
            return _refused(refusal)
        matches = {route: values_in(request.path, route) for route in self.routes}
        there = {route: values for route, values in matches.items() if values is not None}
        if not there:
            paths = ", ".join(sorted({route.path for route in self.routes}))
            message = f"there is nothing at {request.path!a:.200}; the paths are: {paths}"
            return line(404, message)
        method = "GET" if request.method == "HEAD" else request.method
        route = next((route for route in there if route.method == method), None)
        if route is None:
            methods = sorted({route.method for route in there})
            allow = ", ".join([*methods, *(["HEAD"] if "GET" in methods else [])])
            # RFC 9110, 15.5.6
            return line(405, f"only {' and '.join(methods)}", (b"allow", allow.encode()))
        values = there[route]
        if request.has_body and route.method != "POST":
            return line(413, "this request takes no body: send it without one")
        if isinstance(route, View):
            refusal = self.access.reader(request.headers, private=False)
            if refusal is not None and route.path not in _PROBES:
                return _refused(refusal)
            reasons = self.access.sees_texts(request.headers)
            return Call(route.pace, partial(self._show, route, request, reasons))
        if not route.changes:
            if refusal := self.access.reader(request.headers, private=True):
                return _refused(refusal)
        elif refusal := self.access.changer(request.headers):
            self._log(route, values, request).warning("action.refused", reason=refusal.message)
            return _refused(refusal)
        return Call(route.pace, partial(self._perform, route, values, request))

    async def _perform(
        self, action: Action, values: Values, request: Request, body: bytes
    ) -> Answer:
        """Performs an action, and logs who changed what."""
        log = self._log(action, values, request)
        about, by = next(iter(values.values()), ""), self.access.sender(request)
        try:
            parameters = read_body(action.request, body, request.query)
            if self.control is None:
                raise ActionRefused(409, _STARTING)
            answer = await action.perform(self.control, about, parameters, by)
        except ActionRefused as refused:
            if action.changes:
                log.warning("action.refused", reason=str(refused))
            return line(refused.status, str(refused))
        if not isinstance(answer, Done):
            if isinstance(answer, str):
                return _json_text(answer)
            # It may have thousands of rows that differ: a thread leaves the event loop free.
            return await to_thread.run_sync(_json, 200, answer, limiter=self.encoding)
        log.info("action.done", **{"from": answer.before, "to": answer.after})
        return _json(action.status, {"message": answer.message, **answer.details})

    async def _show(self, route: View, request: Request, reasons: bool, body: bytes) -> Answer:
        """``reasons``: whether the sender may see texts that quote documents."""
        if route.path in _PROBES:
            return self._probed(route.path, reasons)
        match route.path:
            case "/metrics":
                accept = request.headers.get(b"accept", b"").decode("latin-1")
                encode, kind = choose_encoder(accept)
                values = _Values([*self.registry.collect()])
                # Most of the time is for the text: a thread leaves the event loop free.
                encoded = await to_thread.run_sync(encode, values, limiter=self.encoding)
                return Answer(200, encoded, kind)
            case "/status":
                status = {**self.health.status(), "changes_need": self.access.changes}
                return _json(200, status if reasons else redacted(status))
            case "/history":  # many numbers: indented, each would be a line
                text = json.dumps(self.health.history(), separators=(",", ":"))
                return Answer(200, f"{text}\n".encode(), "application/json")
            case "/openapi.json":
                return _json(200, document(self.routes))
        return Answer(200, PAGE, "text/html; charset=utf-8", (POLICY,))

    def _probed(self, path: str, reasons: bool) -> Answer:
        """Without ``reasons`` only the status is shown, which is all that an orchestrator needs."""
        live = path == "/livez"
        if why := self.health.alive() if live else self.health.ready():
            return line(503, "\n".join(why) if reasons else "no")
        if live or not (why := self.health.degraded()):
            return line(200, "ok")
        return line(200, "\n".join(["degraded", *(why if reasons else ())]))

    def _log(self, route: Action, values: Values, request: Request) -> Any:
        return structlog.get_logger().bind(
            action=route.name, by=self.access.sender(request), **_of(values)
        )


def _of(values: Values) -> Mapping[str, str]:
    """What an action is about."""
    about = {"scope": values.get("name"), "letter": values.get("id")}
    return {name: each for name, each in about.items() if each is not None}


_PROBES = ("/livez", "/readyz")


def _json(status: int, content: Mapping[str, Any]) -> Answer:
    text = json.dumps(content, default=str, indent=2) + "\n"
    return Answer(status, text.encode(), "application/json")


def _json_text(text: str) -> Answer:
    return Answer(200, text.encode(errors="replace"), "application/json")


def _refused(refusal: Refusal) -> Answer:
    challenge = refusal.challenge.encode()
    headers = ((b"www-authenticate", challenge),) if challenge else ()
    return line(refusal.status, refusal.message, *headers)
