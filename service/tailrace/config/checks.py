"""Finds contradictions between the sections of a file.

Checks the plain data and not the models, so that it also works on a file with malformed parts. It
skips those; the models report them.
"""

import os
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ValidationError

from tailrace.config.delivery import DeliverySettings
from tailrace.config.document import Finding, Location
from tailrace.config.durations import MaxLag
from tailrace.config.fields import Section, StartAt, empty_is_none, from_environment
from tailrace.config.http import HttpSettings
from tailrace.config.interpolation import Unresolved
from tailrace.config.lookup_stages import refusal
from tailrace.config.messages import did_you_mean, path_of
from tailrace.config.scopes import LOOKUP, ScopeSettings
from tailrace.config.snapshots import CHUNK_BYTES, Snapshot
from tailrace.config.store import MongodbStoreSettings, SqliteStoreSettings
from tailrace.config.verification import VerificationSettings
from tailrace.database_names import STORE_COLLECTIONS

Data = dict[str, Any]


def check(data: Data) -> Iterator[Finding]:
    """Every contradiction between parts of the file, with its location."""
    scopes, routes = _items(data.get("scopes")), _items(data.get("routes"))
    store, handlers = _mapping(data.get("store")), data.get("handlers")
    yield from _names(scopes, routes)
    budget = _given(_mapping(data.get("delivery")), "max_in_flight_bytes", DeliverySettings)
    for index, scope in enumerate(scopes):
        if scope:
            yield from _parallel(("scopes", index), scope, budget)
            yield from _scope(("scopes", index), scope, store, _mapping(data.get("http")))
    for index, route in enumerate(routes):
        yield from _parallel(("routes", index), route, budget)
    yield from _routes(routes, scopes, handlers if isinstance(handlers, dict) else None)
    yield from _agreement(routes)
    yield from _whole_documents(routes, scopes)
    yield from _grouped(scopes, routes, _mapping(handlers))
    yield from _files(store, _mapping(handlers))
    if _has(data, "replicas") and store.get("type") == "memory":
        message = "shares nothing with other processes: replicas need the store sqlite or mongodb"
        yield ("store", "type"), f"memory {message}"


def _names(scopes: list[Data], routes: list[Data]) -> Iterator[Finding]:
    """Names of scopes must be unique, and each scope must have a route."""
    names = [_text(scope.get("name")) for scope in scopes]
    routed = set(_all(routes, "scope"))
    if not routed <= set(names):
        routed = set()  # a mistyped name is reported once, at its route
    for index, name in enumerate(names):
        if name and (first := names.index(name)) != index:
            message = f"is the name of scopes[{first}] already; names are unique"
            yield ("scopes", index, "name"), message
        elif name and routed and name not in routed:
            yield ("scopes", index), f"no route hands the changes of {name!r} to a handler"


def _scope(location: Location, scope: Data, store: Data, http: Data) -> Iterator[Finding]:
    if _has(scope, "collection") and not _has(scope, "database"):
        yield (*location, "collection"), "needs the key database beside it"
    if _text(scope.get("full_document")) == LOOKUP:
        yield from _looks_up(location, scope.get("pipeline"))
    if store.get("type") == "mongodb":
        yield from _own_changes(location, scope, _given(store, "database", MongodbStoreSettings))
    # An idle stream is silent for max_await_time_ms, and must not count as dead meanwhile.
    limit = from_environment(_given(http, "liveness_seconds", HttpSettings))
    wait = from_environment(_given(scope, "max_await_time_ms", ScopeSettings))
    if isinstance(limit, int | float) and isinstance(wait, int) and wait >= limit * 1000:
        message = f"must be less than http.liveness_seconds ({limit:g} s)"
        yield (*location, "max_await_time_ms"), f"{message}, or an idle stream would count as dead"


def _parallel(location: Location, section: Data, budget: Any) -> Iterator[Finding]:
    """Chunks that wait for the budget, and those read ahead, must fit into half of it."""
    budget = from_environment(budget)
    parallel = from_environment(_mapping(section.get("snapshot")).get("parallel"))
    if isinstance(parallel, int) and isinstance(budget, int) and budget > 0:
        most = max(budget // 2 // (2 * CHUNK_BYTES), 1)
        if parallel > most:
            message = (
                f"must be at most {most}: twice as many chunks of {CHUNK_BYTES} bytes fit half of"
            )
            yield (*location, "snapshot", "parallel"), f"{message} delivery.max_in_flight_bytes"


def _looks_up(location: Location, pipeline: Any) -> Iterator[Finding]:
    """No stage may read or change what is looked up after the pipeline."""
    for index, stage in enumerate(pipeline if isinstance(pipeline, list) else ()):
        if message := refusal(stage):
            yield (*location, "pipeline", index), message


def _own_changes(location: Location, scope: Data, database: Any) -> Iterator[Finding]:
    """No scope may follow a collection to which this process itself writes."""
    where = f"{database}, where checkpoints and dead letters are kept: every save would be a change"
    if not _has(scope, "database"):
        cure = "use another store (a local one), or follow one database"
        yield location, f"follows the whole cluster, and so {where}; {cure}"
    elif scope["database"] == database and (
        not _has(scope, "collection") or scope["collection"] in STORE_COLLECTIONS
    ):
        yield location, f"follows {where}; give the store another database"


def _routes(routes: list[Data], scopes: list[Data], handlers: Data | None) -> Iterator[Finding]:
    """Routes must name existing scopes and handlers, and no handler twice."""
    names = _all(scopes, "name")
    for index, route in enumerate(routes):
        scope, listed = _text(route.get("scope")), route.get("handlers")
        if scope and names and scope not in names:
            yield ("routes", index, "scope"), _unknown("scope", scope, names)
        wanted = [_text(name) for name in listed] if isinstance(listed, list) else []
        for number, name in enumerate(wanted):
            location = ("routes", index, "handlers", number)
            if name and name in wanted[:number]:
                yield location, f"{name!r} is given twice"
            elif name and handlers is not None and name not in handlers:
                yield location, _unknown("handler", name, list(handlers))


def _agreement(routes: list[Data]) -> Iterator[Finding]:
    """The routes of a handler and a scope must agree on what they say of it."""
    for key, way in _WAYS.items():
        first: dict[tuple[str, str], tuple[int, Any]] = {}
        for index, route in enumerate(routes):
            scope, names = _text(route.get("scope")), route.get("handlers")
            if not scope or not isinstance(names, list) or not _has(route, key):
                continue
            try:
                value = getattr(_OfHandlers.model_validate({key: route[key]}), key)
            except ValidationError:
                continue
            for handler in filter(None, map(_text, names)):
                number, other = first.setdefault((scope, handler), (index, value))
                if other != value:
                    yield (
                        ("routes", index, key),
                        f"differs from routes[{number}].{key}: handler {handler!r} {way} in one "
                        f"way in scope {scope!r}; give both routes the same, or leave one out",
                    )
                    break


_WAYS = {
    "start_at": "begins",
    "snapshot": "begins",
    "verify": "is verified",
    "max_lag": "is watched",
}


class _OfHandlers(Section):
    """What a route says of its handlers."""

    start_at: StartAt | None = None
    snapshot: Snapshot | None = None
    verify: VerificationSettings | None = None
    max_lag: MaxLag | None = None


def _whole_documents(routes: list[Data], scopes: list[Data]) -> Iterator[Finding]:
    """The rows of a scope with a pipeline are no whole documents: they cannot be compared."""
    reshaped = {_text(scope.get("name")) for scope in scopes if scope.get("pipeline")}
    for index, route in enumerate(routes):
        if (scope := _text(route.get("scope"))) in reshaped and _has(route, "verify"):
            message = f"does not fit scope {scope!r}: with a pipeline, its rows are not whole"
            yield ("routes", index, "verify"), f"{message} documents, which could be compared"


def _grouped(scopes: list[Data], routes: list[Data], handlers: Data) -> Iterator[Finding]:
    """A handler whose batches are divided by key cannot get transactions whole."""
    by_key = {name: key for name, each in handlers.items() if (key := _divides(_mapping(each)))}
    for index, scope in enumerate(scopes):
        if scope.get("transactions") != "grouped" or not _text(scope.get("name")):
            continue
        lists = [route.get("handlers") for route in routes if route.get("scope") == scope["name"]]
        names = [name for each in lists if isinstance(each, list) for name in each]
        for name in sorted(by_key.keys() & set(map(_text, names)), key=str):
            message = (
                f"grouped does not fit handler {name!r}: its {by_key[name]} divides transactions"
            )
            yield ("scopes", index, "transactions"), message


def _divides(handler: Data) -> str:
    """The setting with which a handler gets several batches at once, if it has one."""
    if handler.get("type") != "http":
        return "order: key" if handler.get("order") == "key" else ""
    sizes = handler.get("batch_size", 1), handler.get("concurrency", 1)
    several = all(isinstance(each, int) and each > 1 for each in sizes)
    return f"concurrency: {sizes[1]}" if several else ""


def _unknown(what: str, name: str, known: list[str]) -> str:
    known_here = f"; known: {', '.join(map(repr, known))}" if known else ""
    return f"there is no {what} {name!r}{did_you_mean(name, known) or known_here}"


def _files(store: Data, handlers: Data) -> Iterator[Finding]:
    """No two parts of the process may write the same file."""
    paths: dict[Location, Any] = {}
    if _given(store, "type", SqliteStoreSettings) == "sqlite":
        paths["store", "path"] = _given(store, "path", SqliteStoreSettings)
    for name, handler in handlers.items():
        paths["handlers", name, "path"] = _mapping(handler).get("path")
    writers: dict[str, Location] = {}
    for location, path in paths.items():
        if text := _text(path):
            first = writers.setdefault(os.path.abspath(text), location)
            if first != location:
                yield location, f"{text!r} is written by {path_of(first)} already"


def _items(value: Any) -> list[Data]:
    return [_mapping(item) for item in value] if isinstance(value, list) else []


def _mapping(value: Any) -> Data:
    return value if isinstance(value, dict) else {}


def _has(section: Data, key: str) -> bool:
    return empty_is_none(section.get(key)) is not None


def _given(section: Data, key: str, model: type[BaseModel]) -> Any:
    return section[key] if _has(section, key) else model.model_fields[key].default


def _all(items: list[Data], key: str) -> list[str]:
    """The text under the key in each item; an empty list if any item has none that is readable."""
    known = [name for item in items if (name := _text(item.get(key))) is not None]
    return known if len(known) == len(items) else []


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, str) and not isinstance(value, Unresolved) else None
