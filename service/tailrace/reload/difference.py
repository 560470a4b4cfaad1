"""What a reload changes, by scope and handler, for people and programs."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.config.difference import ScopeChange, at_once, needs_restart, scope_changes
from tailrace.config.subscriptions import most_streams
from tailrace.errors import ConfigurationError, Problem
from tailrace.handlers.pool import HandlerPool
from tailrace.reload.desired_config import DesiredConfig


@dataclass(frozen=True, slots=True)
class ReloadChanges:
    """What a reload changes. ``handlers``: ``opened``, ``reopened``, ``closed`` or ``kept``, by
    name. ``settings``: keys that apply at once. ``client``: whether that of the source changes.
    ``code``: by handler, files of its loaded modules that have changed, which no reload applies."""

    scopes: Mapping[str, ScopeChange]
    handlers: Mapping[str, str]
    settings: Collection[str]
    client: bool
    code: Mapping[str, Collection[str]] = field(default_factory=dict)

    def __str__(self) -> str:
        """Only names: nothing of this is secret."""
        by_scope = {name: each.effect for name, each in self.scopes.items()}
        parts = [*_by_effect("scopes", by_scope), *_by_effect("handlers", self.handlers)]
        parts += [f"applied: {', '.join(self.settings)}"] if self.settings else []
        if self.code:
            files = listed({path for paths in self.code.values() for path in paths})
            parts.append(
                f"restart needed: the code of handlers {listed(self.code)} has changed ({files}), "
                "and only a restart of the process loads it"
            )
        return "; ".join(parts) or "nothing has changed"

    def document(self) -> dict[str, Any]:
        """As JSON types."""
        return {
            "scopes": {
                name: {"effect": each.effect, "because": list(each.because)}
                for name, each in self.scopes.items()
            },
            "handlers": dict(self.handlers),
            "settings": list(self.settings),
            "restart_needed": {name: list(paths) for name, paths in self.code.items()},
        }

    @property
    def begun(self) -> list[str]:
        """The scopes that have a first run, or another one."""
        effects = ("begun", "restarted")
        return [name for name, each in self.scopes.items() if each.effect in effects]


def difference(
    old: DesiredConfig, new: DesiredConfig, pool: HandlerPool, most: int
) -> ReloadChanges:
    """What changes from one configuration to another. ``most``: streams that the client can hold.

    Raises :class:`ConfigurationError` for what only a restart of the process can apply.
    """
    if keys := needs_restart(old.settings, new.settings):
        message = "changed, and only a restart of the process applies that: nothing was changed"
        raise ConfigurationError(*(Problem(key, message) for key in keys))
    if (streams := most_streams(new.settings)) > most:
        message = (
            f"may need {streams} streams (catch_up.streams: {new.settings.catch_up.streams}), and "
            f"this process has connections for {most}: only a restart of the process can open more"
        )
        raise ConfigurationError(Problem("scopes", message))
    handlers = dict.fromkeys(old.handlers.keys() - new.handlers.keys(), "closed")
    for name, plan in new.handlers.items():
        former = old.handlers.get(name)
        same = former is not None and former.same_as(plan)
        handlers[name] = "kept" if same else "reopened" if former else "opened"
        if not same and plan.holds is not None and (other := pool.holder(plan.holds)):
            message = (
                f"{plan.holds} is open in this process for handler {other!r}: give another "
                "path, or restart the process"
            )
            raise ConfigurationError(Problem(f"handlers.{name}.path", message))
    reopened = [name for name, effect in handlers.items() if effect == "reopened"]
    of_all = ["a file of mongodb.uri"] if old.client.files != new.client.files else []
    scopes = scope_changes(old.settings, new.settings, reopened, of_all)
    applied = at_once(old.settings, new.settings)
    return ReloadChanges(scopes, handlers, applied, client=old.client != new.client)


def _by_effect(what: str, effects: Mapping[str, str]) -> Iterator[str]:
    """Who is affected, by effect; the rest is counted."""
    for effect in dict.fromkeys(effects.values()):
        names = [name for name, each in effects.items() if each == effect]
        if effect != "kept":
            yield f"{what} {effect}: {listed(names)}"


def listed(names: Collection[str]) -> str:
    """Names in a sentence."""
    return ", ".join(sorted(names))
