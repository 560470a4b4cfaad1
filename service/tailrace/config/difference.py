"""What differs between two configurations, as a running process applies it."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.config.fields import Section
from tailrace.config.handlers import AnyHandlerSettings
from tailrace.config.settings import Settings
from tailrace.config.subscriptions import max_lags, rounds

OF_ALL_SCOPES = (
    "mongodb.uri",
    "mongodb.driver",
    "checkpoint",
    "delivery.lanes",
    "delivery.max_in_flight_bytes",
    "catch_up",
    "supervisor",
)
"""The sections and keys that each scope begins with."""
OF_FAILURES = ("delivery.retry", "delivery.dead_letters", "delivery.on_failure")
"""The keys that hold for the handlers that do not say otherwise."""
AT_ONCE = (
    "mongodb.uri_file",
    "mongodb.connect_timeout_seconds",
    "shutdown",
    "http.token",
    "http.token_file",
    "http.protect",
    "http.liveness_seconds",
    "logging",
)
"""The sections and keys that apply without a restart of anything."""
_BY_PART = ("scopes", "handlers", "routes")
_UNUSED = ("pipeline", "include")


@dataclass(frozen=True, slots=True)
class ScopeChange:
    """What becomes of a scope: ``begun``, ``restarted``, ``stopped`` or ``kept``.

    ``because``: the keys, routes and handlers that have changed.
    """

    effect: str
    because: tuple[str, ...] = ()


def needs_restart(old: Settings, new: Settings) -> list[str]:
    """The changed keys that only a new process can apply."""
    applied = (*OF_ALL_SCOPES, *OF_FAILURES, *AT_ONCE)
    return [key for key in _all_changed(old, new) if not _is_in(key, applied)]


def at_once(old: Settings, new: Settings) -> list[str]:
    """The changed keys that apply without a restart of anything."""
    keys = [key for key in _all_changed(old, new) if _is_in(key, AT_ONCE)]
    if (
        old.pipeline.tables_at() != new.pipeline.tables_at()
    ):  # of the rest, this process uses nothing
        keys.append("pipeline.tables")
    of_routes = {"routes.verify": rounds, "routes.max_lag": max_lags}
    return keys + [key for key, read in of_routes.items() if read(old) != read(new)]


def scope_changes(
    old: Settings, new: Settings, reopened: Collection[str], of_all: Collection[str] = ()
) -> Mapping[str, ScopeChange]:
    """By scope of either configuration. ``reopened``: handlers that are opened again.

    ``of_all``: what else has changed for each scope.
    """
    before = {scope.name: scope for scope in old.scopes}
    after = {scope.name: scope for scope in new.scopes}
    keys = _all_changed(old, new)
    of_all = [*(key for key in keys if _is_in(key, OF_ALL_SCOPES)), *of_all]
    of_failures = [key for key in keys if _is_in(key, OF_FAILURES)]
    changes = {name: ScopeChange("stopped") for name in before if name not in after}
    for name, scope in after.items():
        if name not in before:
            changes[name] = ScopeChange("begun")
            continue
        because = [*_changed(before[name], scope), *of_all]
        if _routes(old, name) != _routes(new, name):
            because.append("routes")
        inherited = {
            key
            for each in _handlers(new, name)
            for key in of_failures
            if _inherits(new.handlers[each], key)
        }
        because += sorted(inherited)
        because += [f"handler {each}" for each in _handlers(new, name) if each in reopened]
        changes[name] = ScopeChange("restarted" if because else "kept", tuple(because))
    return changes


def _routes(settings: Settings, scope: str) -> list[Any]:
    """Those of a scope, without what applies without its restart."""
    own = [route for route in settings.routes if route.scope == scope]
    return [route.model_copy(update={"verify": None, "max_lag": None}) for route in own]


def _handlers(settings: Settings, scope: str) -> Iterator[str]:
    return iter(dict.fromkeys(n for route in _routes(settings, scope) for n in route.handlers))


def _inherits(handler: AnyHandlerSettings, key: str) -> bool:
    """Whether a key of ``delivery`` holds for the handler."""
    return getattr(handler, key.removeprefix("delivery."), None) is None


def _is_in(key: str, known: Collection[str]) -> bool:
    """Whether the key, or its section, is one of those."""
    return key in known or key.partition(".")[0] in known


def _all_changed(old: Settings, new: Settings) -> list[str]:
    """The changed keys of the sections that belong to no scope, handler or route; the section
    itself if it is there or not, or of another type."""
    names = [name for name in Settings.by_key() if name not in (*_BY_PART, *_UNUSED)]
    return [key for name in names for key in _keys(old, new, name)]


def _keys(old: Settings, new: Settings, section: str) -> list[str]:
    one, other = getattr(old, section), getattr(new, section)
    if one == other:
        return []
    if type(one) is not type(other) or not isinstance(one, Section):
        return [section]
    return [f"{section}.{key}" for key in _changed(one, other)]


def _changed(old: Section, new: Section) -> list[str]:
    fields = type(new).model_fields.items()
    return [
        field.alias or name for name, field in fields if getattr(old, name) != getattr(new, name)
    ]
