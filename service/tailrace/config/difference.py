"""What differs between two configurations, as a running process applies it."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.config.fields import Section
from tailrace.config.settings import Settings

OF_ALL_SCOPES = ("checkpoint", "supervisor")
"""The sections that each scope begins with."""
AT_ONCE = ("shutdown", "logging")
"""The sections that apply without a restart of anything."""
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
    applied = {*OF_ALL_SCOPES, *AT_ONCE, *_BY_PART, *_UNUSED}
    sections = [name for name in Settings.by_key() if name not in applied]
    return [key for name in sections for key in _keys(old, new, name)]


def at_once(old: Settings, new: Settings) -> list[str]:
    """The changed keys that apply without a restart of anything."""
    return [key for name in AT_ONCE for key in _keys(old, new, name)]


def scope_changes(
    old: Settings, new: Settings, reopened: Collection[str]
) -> Mapping[str, ScopeChange]:
    """By scope of either configuration. ``reopened``: handlers that are opened anew."""
    before = {scope.name: scope for scope in old.scopes}
    after = {scope.name: scope for scope in new.scopes}
    of_all = [key for name in OF_ALL_SCOPES for key in _keys(old, new, name)]
    found = {name: ScopeChange("stopped") for name in before if name not in after}
    for name, scope in after.items():
        if name not in before:
            found[name] = ScopeChange("begun")
            continue
        because = [*_changed(before[name], scope), *of_all]
        if _routes(old, name) != _routes(new, name):
            because.append("routes")
        because += [f"handler {each}" for each in _handlers(new, name) if each in reopened]
        found[name] = ScopeChange("restarted" if because else "kept", tuple(because))
    return found


def _routes(settings: Settings, scope: str) -> list[Any]:
    return [route for route in settings.routes if route.scope == scope]


def _handlers(settings: Settings, scope: str) -> Iterator[str]:
    return iter(dict.fromkeys(n for route in _routes(settings, scope) for n in route.handlers))


def _keys(old: Settings, new: Settings, section: str) -> list[str]:
    """The keys of a section that differ; the section itself if it is there or not, or of another
    type."""
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
