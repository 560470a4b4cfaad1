"""What can only be seen across sections.

Looks at the data and not at the models, so that it speaks even when some of the file is
malformed (which the models report); what it cannot make out, it passes over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from tailrace.config.document import Finding, Location
from tailrace.config.fields import empty_is_none, from_environment
from tailrace.config.interpolation import Unresolved
from tailrace.config.messages import did_you_mean, path_of
from tailrace.config.scopes import ScopeSettings
from tailrace.config.settings import HttpSettings
from tailrace.config.store import COLLECTIONS, MongodbStoreSettings, SqliteStoreSettings

_UNWATCHABLE = ("admin", "config", "local")
"""https://www.mongodb.com/docs/manual/changeStreams/#watch-a-collection--database--or-deployment"""


def check(data: dict[str, Any]) -> Iterator[Finding]:
    """Every contradiction between the parts of the file, with its place."""
    outline = _Outline.of(data)
    yield from _scopes(outline)
    yield from _routes(outline)
    yield from _own_changes(outline)
    yield from _files(outline)
    yield from _liveness(outline)
    yield from _protection(outline)


@dataclass(frozen=True, slots=True)
class _Outline:
    """The sections, with everything in them that is a mapping."""

    data: dict[str, Any]
    scopes: dict[int, dict[str, Any]]
    handlers: dict[str, dict[str, Any]] | None
    routes: dict[int, dict[str, Any]]

    @classmethod
    def of(cls, data: dict[str, Any]) -> _Outline:
        handlers = data.get("handlers")
        return cls(
            data,
            _indexed(data.get("scopes")),
            {str(name): _mapping(item) for name, item in handlers.items()}
            if isinstance(handlers, dict)
            else None,
            _indexed(data.get("routes")),
        )

    def section(self, *keys: str) -> dict[str, Any]:
        """A section, or an empty one where it is absent or malformed."""
        section = self.data
        for key in keys:
            section = _mapping(section.get(key))
        return section

    def names(self, part: str, key: str) -> list[str] | None:
        """What each of ``scopes`` or ``routes`` has there; ``None`` unless all are readable."""
        items = self.data.get(part)
        if not isinstance(items, list) or not items:
            return None
        names = [_text(_mapping(item).get(key)) for item in items]
        known = [name for name in names if name is not None]
        return known if len(known) == len(names) else None


def _scopes(outline: _Outline) -> Iterator[Finding]:
    """Names are unique, and what is followed can be followed."""
    seen: dict[str, int] = {}
    names, routed = outline.names("scopes", "name"), outline.names("routes", "scope")
    if names is None or routed is None or not set(routed) <= set(names):
        routed = names  # a mistyped name is reported at its route, and once is enough
    for index, scope in outline.scopes.items():
        name = _text(scope.get("name"))
        if name and name in seen:
            first = path_of(("scopes", seen[name]))
            yield ("scopes", index, "name"), f"is the name of {first} already; names are unique"
        elif name:
            seen[name] = index
            if routed is not None and name not in routed:
                yield ("scopes", index), f"no route hands the changes of {name!r} to a handler"
        database = empty_is_none(scope.get("database"))
        if database is None and empty_is_none(scope.get("collection")) is not None:
            yield ("scopes", index, "collection"), "needs the key database beside it"
        if _text(database) in _UNWATCHABLE:
            yield (
                ("scopes", index, "database"),
                f"the server opens no change stream on {', '.join(_UNWATCHABLE)}",
            )


def _routes(outline: _Outline) -> Iterator[Finding]:
    """Routes name what exists, and no handler twice."""
    scopes = outline.names("scopes", "name")
    for index, route in outline.routes.items():
        scope = _text(route.get("scope"))
        if scope and scopes is not None and scope not in scopes:
            yield ("routes", index, "scope"), _unknown("scope", scope, scopes)
        handlers = route.get("handlers")
        names = [_text(name) for name in handlers] if isinstance(handlers, list) else []
        for place, name in enumerate(names):
            location = ("routes", index, "handlers", place)
            if name and name in names[:place]:
                yield location, f"{name!r} is given twice"
            elif name and outline.handlers is not None and name not in outline.handlers:
                yield location, _unknown("handler", name, list(outline.handlers))


def _unknown(what: str, name: str, known: list[str]) -> str:
    known_here = f"; known: {', '.join(map(repr, known))}" if known else ""
    return f"there is no {what} {name!r}{did_you_mean(name, known) or known_here}"


def _own_changes(outline: _Outline) -> Iterator[Finding]:
    """No scope follows a collection that this process itself writes to."""
    store = outline.section("store")
    if store.get("type") != "mongodb":
        return
    database = _text(_given(store, "database", MongodbStoreSettings))
    where = f"{database}, where checkpoints and dead letters are kept"
    for index, scope in outline.scopes.items():
        followed = empty_is_none(scope.get("database"))
        if followed is None:
            yield (
                ("scopes", index),
                f"follows the whole cluster, and so {where}: every save would be a change; use "
                "another store (a local one), or follow one database",
            )
        elif followed == database and empty_is_none(scope.get("collection")) in (
            None,
            *COLLECTIONS,
        ):
            yield (
                ("scopes", index),
                f"follows {where}: every save would be a change; give the store another database",
            )


def _files(outline: _Outline) -> Iterator[Finding]:
    """No two parts of the process write the same file."""
    writers: dict[str, Location] = {}
    for location, path in _paths(outline):
        if not path:
            continue
        first = writers.setdefault(os.path.abspath(path), location)
        if first != location:
            yield location, f"{path!r} is written by {path_of(first)} already"


def _paths(outline: _Outline) -> Iterator[tuple[Location, str | None]]:
    store = outline.section("store")
    if _given(store, "type", SqliteStoreSettings) == "sqlite":
        yield ("store", "path"), _text(_given(store, "path", SqliteStoreSettings))
    for name, handler in (outline.handlers or {}).items():
        yield ("handlers", name, "path"), _text(handler.get("path"))


def _liveness(outline: _Outline) -> Iterator[Finding]:
    """An idle stream is quiet for ``max_await_time_ms``, and must not count as dead for that."""
    limit = _number(_given(outline.section("http"), "liveness_seconds", HttpSettings))
    for index, scope in outline.scopes.items():
        wait = _number(_given(scope, "max_await_time_ms", ScopeSettings))
        if limit is not None and wait is not None and wait >= limit * 1000:
            yield (
                ("scopes", index, "max_await_time_ms"),
                f"must be less than http.liveness_seconds ({limit:g} s), "
                "or an idle stream would count as dead",
            )


def _protection(outline: _Outline) -> Iterator[Finding]:
    """What needs a token needs one that can be given."""
    http = outline.section("http")
    given = (empty_is_none(http.get(key)) for key in ("token", "token_file"))
    if http.get("protect") == "everything" and all(value is None for value in given):
        yield ("http", "protect"), "everything needs a token beside it: http.token or token_file"


def _given(section: dict[str, Any], key: str, model: type[BaseModel]) -> Any:
    value = section.get(key)
    return model.model_fields[key].default if value is None else value


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, str) and not isinstance(value, Unresolved) else None


def _number(value: Any) -> float | None:
    value = from_environment(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _indexed(value: Any) -> dict[int, dict[str, Any]]:
    items = enumerate(value) if isinstance(value, list) else ()
    return {index: item for index, item in items if isinstance(item, dict)}
