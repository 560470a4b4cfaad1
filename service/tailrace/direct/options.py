"""What the reader is told, as the section of a configuration file that it would be.

So the daemon's own checks judge it, and its own words say what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from bson import json_util
from pydantic import ValidationError

from tailrace.config import ScopeSettings, Settings, parse
from tailrace.config.fields import Bytes, Count, SecondsOrZero, Section
from tailrace.config.messages import did_you_mean, problems_of
from tailrace.config.scalars import resolve
from tailrace.drivers.options import client_options
from tailrace.errors import ConfigurationError, Problem
from tailrace.model import Scope, StartPoint
from tailrace.stream import ChangeStreamOptions
from tailrace.stream.configured import start_point, stream_options


class LimitSettings(Section):
    """How much a trigger takes. All of it goes through one process."""

    max_events_per_trigger: Count = 10_000
    """Events of a micro-batch at most. A large transaction may be cut."""

    max_bytes_per_trigger: Bytes = 64 * 2**20
    """Bytes of raw events of a micro-batch at most; one larger event comes alone."""

    idle_seconds: SecondsOrZero = 60.0
    """How often a stream without events moves on, by a micro-batch without rows, so that its
    token does not grow old. 0: whenever the server's position has moved."""


@dataclass(frozen=True, slots=True)
class Following:
    """One scope, and how to read it. Plain data: Spark sends it to other processes."""

    uri: str = field(repr=False)
    driver: str
    connect_timeout_seconds: float
    scope: Scope
    stream: ChangeStreamOptions
    start: StartPoint
    stop_on_invalidate: bool
    limits: LimitSettings


class _Option(NamedTuple):
    section: str
    key: str
    read: Callable[[str], Any] = str


def _json(text: str) -> Any:
    try:
        return json_util.loads(text)
    except (ValueError, TypeError) as error:
        raise ValueError(f"must be (Extended) JSON: {error}") from None


def _list(text: str) -> Any:
    value = _json(text)
    return [value] if isinstance(value, dict) else value


OPTIONS = {
    "uri": _Option("mongodb", "uri"),
    "uriFile": _Option("mongodb", "uri_file"),
    "driver": _Option("mongodb", "driver"),
    "connectTimeoutSeconds": _Option("mongodb", "connect_timeout_seconds", resolve),
    "name": _Option("scope", "name"),
    "database": _Option("scope", "database"),
    "collection": _Option("scope", "collection"),
    "pipeline": _Option("scope", "pipeline", _list),
    "fullDocument": _Option("scope", "full_document"),
    "fullDocumentBeforeChange": _Option("scope", "full_document_before_change"),
    "showExpandedEvents": _Option("scope", "show_expanded_events", resolve),
    "matchCollectionUUIDForUpdateLookup": _Option(
        "scope", "match_collection_uuid_for_update_lookup", resolve
    ),
    "batchSize": _Option("scope", "batch_size", resolve),
    "maxAwaitTimeMS": _Option("scope", "max_await_time_ms", resolve),
    "readPreference": _Option("scope", "read_preference"),
    "startAt": _Option("scope", "start_at"),
    "splitLargeEvents": _Option("scope", "split_large_events", resolve),
    "onInvalidate": _Option("scope", "on_invalidate"),
    "collation": _Option("scope", "collation", _json),
    "comment": _Option("scope", "comment"),
    "maxEventsPerTrigger": _Option("limits", "max_events_per_trigger", resolve),
    "maxBytesPerTrigger": _Option("limits", "max_bytes_per_trigger", resolve),
    "idleSeconds": _Option("limits", "idle_seconds", resolve),
}
"""Spark's options, which know no case. The spelling of the configuration file is taken as well."""

_NAMES = {name.lower(): name for name in OPTIONS}
_NAMES |= {option.key: name for name, option in OPTIONS.items()}
_SPELLINGS = {(option.section, option.key): name for name, option in OPTIONS.items()}
_PLACE = re.compile(r"(?:mongodb|scopes\[0\])(?:\.(\w+)(.*))?\Z")


def following(options: Mapping[str, str]) -> Following:
    """The options checked. Raises :class:`ConfigurationError` with every problem at once."""
    sections: dict[str, dict[str, Any]] = {"mongodb": {}, "scope": {"name": "direct"}, "limits": {}}
    problems: list[Problem] = []
    for given, text in options.items():
        name = _NAMES.get(given.lower())
        if name is None:
            problems.append(Problem(given, f"is no option{_known(given)}"))
            continue
        section, key, read = OPTIONS[name]
        if name == "startAt" and text.lstrip().startswith("{"):
            key, read = "start_after", _json
        try:
            sections[section][key] = read(text)
        except ValueError as error:
            problems.append(Problem(name, str(error)))
    limits = _limits(sections["limits"], problems)
    settings = _settings(sections, problems)
    if problems or settings is None or limits is None:
        raise ConfigurationError(*problems)
    return _following(settings, settings.scopes[0], limits)


def _following(settings: Settings, scope: ScopeSettings, limits: LimitSettings) -> Following:
    stream = stream_options(scope)
    # What a reply holds beyond a trigger's share would only be read again by the next one.
    most = min(stream.batch_size or limits.max_events_per_trigger, limits.max_events_per_trigger)
    return Following(
        uri=settings.mongodb.uri.get_secret_value(),
        driver=settings.mongodb.driver,
        connect_timeout_seconds=settings.mongodb.connect_timeout_seconds,
        scope=Scope(scope.name, scope.database, scope.collection),
        stream=replace(stream, batch_size=most),
        start=start_point(scope),
        stop_on_invalidate=scope.on_invalidate == "stop",
        limits=limits,
    )


def _settings(sections: Mapping[str, dict[str, Any]], problems: list[Problem]) -> Settings | None:
    """The configuration of a process with this one scope, whose URI its driver takes."""
    scope = sections["scope"]
    file = {
        "mongodb": sections["mongodb"],
        "scopes": [scope],
        "handlers": {"rows": {"type": "log"}},
        "routes": [{"scope": scope["name"], "handlers": ["rows"]}],
    }
    try:
        settings = parse(file)
        client_options(settings.mongodb.uri.get_secret_value(), streams=1)
        return settings
    except ConfigurationError as error:
        unread = {problem.path for problem in problems}
        problems += [one for one in map(_renamed, error.problems) if one.path not in unread]
        return None


def _limits(section: dict[str, Any], problems: list[Problem]) -> LimitSettings | None:
    try:
        return LimitSettings.model_validate(section)
    except ValidationError as error:
        for place, problem in problems_of(error):
            problems.append(Problem(_SPELLINGS["limits", str(place[0])], problem.message))
        return None


def _renamed(problem: Problem) -> Problem:
    """The problem under the option's name instead of the file's path."""
    match = _PLACE.match(problem.path)
    if match is None or match[1] is None:
        return problem
    names: Iterable[str] = (
        name
        for (_, key), name in _SPELLINGS.items()
        if key == match[1] or (key, match[1]) == ("start_at", "start_after")
    )
    return Problem(f"{next(iter(names), match[1])}{match[2]}", problem.message)


def _known(given: str) -> str:
    meant = did_you_mean(given.lower(), _NAMES)
    for spelling, name in _NAMES.items():
        meant = meant.replace(repr(spelling), repr(name))
    return meant or f"; known: {', '.join(OPTIONS)}"
