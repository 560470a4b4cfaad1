"""Applies a changed configuration to the running process: only what changed is begun anew.

Whatever can fail comes first: the file is read and checked, and new handlers are opened beside the
old ones. Then each changed scope is drained and begun anew from its checkpoint, in its own task.
A handler is closed when no scope uses it any more.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from tailrace import config
from tailrace.assembly import followed_by, scope_plans
from tailrace.config import Settings
from tailrace.config.difference import ScopeChange, at_once, needs_restart, scope_changes
from tailrace.control import ActionRefused, Done
from tailrace.engine import Runtime, ScopePlan, Supervisor, Watcher
from tailrace.errors import ConfigurationError, Problem, StartRefused, Unavailable, describe
from tailrace.handlers import check_handlers
from tailrace.handlers.pool import HandlerPlan, HandlerPool, OpenHandler
from tailrace.handlers.types import handler_models
from tailrace.replicas.leases import Leases
from tailrace.snapshot.server import SnapshotServer

SPARE_SCOPES = 64
"""How many scopes a process has connections for, beside those that it starts with."""

_OPENING_SECONDS = 10.0
"""How long opening all new handlers may take. Until then the old ones go on."""
_PATIENCE_SECONDS = 20.0
"""How long the answer waits for scopes to begin anew."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What a reload changes. ``handlers``: ``opened``, ``reopened``, ``closed`` or ``kept``, by
    name. ``settings``: keys that apply at once."""

    scopes: Mapping[str, ScopeChange]
    handlers: Mapping[str, str]
    settings: Collection[str]

    def __str__(self) -> str:
        """Only names: nothing of this is secret."""
        by_scope = {name: each.effect for name, each in self.scopes.items()}
        parts = [*_told("scopes", by_scope), *_told("handlers", self.handlers)]
        parts += [f"applied: {', '.join(self.settings)}"] if self.settings else []
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
        }


def handler_plans(settings: Settings) -> dict[str, HandlerPlan]:
    """How each handler is opened now. Reads the files of secrets.

    Raises :class:`ConfigurationError` for one that cannot be read.
    """
    follows, found = followed_by(settings), {}
    for name, each in settings.handlers.items():
        try:
            found[name] = HandlerPlan.of(name, each, follows.get(name, ()))
        except Unavailable as error:
            raise ConfigurationError(Problem(f"handlers.{name}", str(error))) from error
    return found


@dataclass(eq=False)
class Reloader:
    """Reloads the configuration ``file`` of a process that runs with ``settings``.

    ``server``: what snapshots read. ``most_scopes``: for how many scopes the process has
    connections. ``apply`` takes over what belongs to no scope.
    """

    file: str
    settings: Settings
    pool: HandlerPool
    supervisor: Supervisor
    runtime: Runtime
    server: SnapshotServer
    leases: Leases | None
    most_scopes: int
    apply: Callable[[Settings], None]
    _turn: anyio.Lock = field(default_factory=anyio.Lock)
    _thread: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))
    _used: dict[str, Collection[OpenHandler]] = field(init=False)
    """By scope, the handlers that its watcher calls."""

    def __post_init__(self) -> None:
        names = (scope.name for scope in self.settings.scopes)
        self._used = {name: _handlers_of(name, self.settings, self.pool.open) for name in names}

    async def reload(self, *, dry_run: bool) -> Done:
        """Applies the file as it is now, or says what that would change.

        Raises :class:`ActionRefused`; then everything goes on as before. A second call waits for
        the first one, and compares with what that has applied.
        """
        async with self._turn:
            try:
                return await self._reload(dry_run=dry_run)
            except ConfigurationError as error:
                raise ActionRefused(422, await self._one_line(error)) from error
            except StartRefused as error:
                told = f"{describe(error)}. Nothing was changed: reload again when it answers"
                raise ActionRefused(503, told) from error

    async def _reload(self, *, dry_run: bool) -> Done:
        # In a thread: a large file takes longer than the scopes may wait.
        new, plans = await anyio.to_thread.run_sync(self._read, limiter=self._thread)
        difference = self._difference(new, plans)
        details = {"dry_run": dry_run, **difference.document()}
        if dry_run:
            return Done(f"{difference}. Dry run: nothing was changed", details=details)
        self._require_changeable()
        opened = await self._open(difference, plans)
        pending = self._begin_all(difference, new, opened)
        with anyio.move_on_after(_PATIENCE_SECONDS):
            for done in pending.values():
                await done.wait()
        late = [name for name, done in pending.items() if not done.is_set()]
        told = f"{difference}"
        if late:
            told += f". Still draining, and done when its handler calls have ended: {_list(late)}"
        return Done(told, after=str(difference), details={**details, "draining": late})

    def _read(self) -> tuple[Settings, Mapping[str, HandlerPlan]]:
        """The file as it is now, checked. Blocks. Raises :class:`ConfigurationError`."""
        settings = config.load(self.file, handler_models)
        if problems := check_handlers(settings.handlers, settings.scopes, settings.routes):
            raise ConfigurationError(*problems)
        return settings, handler_plans(settings)

    def _difference(self, new: Settings, plans: Mapping[str, HandlerPlan]) -> Difference:
        if keys := needs_restart(self.settings, new):
            told = "changed, and only a restart of the process applies that: nothing was changed"
            raise ConfigurationError(*(Problem(key, told) for key in keys))
        if len(new.scopes) > self.most_scopes:
            told = (
                f"are {len(new.scopes)}, and this process has connections for {self.most_scopes}: "
                "only a restart of the process can follow more"
            )
            raise ConfigurationError(Problem("scopes", told))
        handlers = dict.fromkeys(self.pool.open.keys() - plans.keys(), "closed")
        for name, plan in plans.items():
            former = self.pool.open.get(name)
            same = former is not None and former.plan.same_as(plan)
            handlers[name] = "kept" if same else "reopened" if former else "opened"
            if not same and plan.holds is not None and (other := self.pool.holder(plan.holds)):
                told = (
                    f"{plan.holds} is open in this process for handler {other!r}: give another "
                    "path, or restart the process"
                )
                raise ConfigurationError(Problem(f"handlers.{name}.path", told))
        reopened = [name for name, effect in handlers.items() if effect == "reopened"]
        scopes = scope_changes(self.settings, new, reopened)
        return Difference(scopes, handlers, at_once(self.settings, new))

    async def _open(
        self, difference: Difference, plans: Mapping[str, HandlerPlan]
    ) -> dict[str, OpenHandler]:
        """All handlers, those that changed opened. If one cannot be opened, none is."""
        changed = ("opened", "reopened")
        wanted = [plan for name, plan in plans.items() if difference.handlers[name] in changed]
        try:
            with anyio.fail_after(_OPENING_SECONDS):
                opened = await self.pool.add(wanted)
        except TimeoutError:
            names = ", ".join(plan.name for plan in wanted)
            told = f"could not be opened within {_OPENING_SECONDS:g} s: {names}"
            raise StartRefused(f"handlers {told}", may_pass=True) from None
        try:
            self._require_changeable()  # the process may have been stopped meanwhile
        except ActionRefused:
            await self.pool.discard(opened)
            raise
        return {name: opened.get(name) or self.pool.open[name] for name in plans}

    def _begin_all(
        self, difference: Difference, new: Settings, opened: Mapping[str, OpenHandler]
    ) -> Mapping[str, anyio.Event]:
        """Begins all changes; gives, by scope, what is set when its change is done."""
        handlers = {name: each.handler for name, each in opened.items()}
        plans = {plan.scope.name: plan for plan in scope_plans(new, handlers, self.server)}
        changes = {n: each.effect for n, each in difference.scopes.items() if each.effect != "kept"}
        self.settings = new
        self.apply(new)
        self.pool.use(opened)
        self.runtime.budget.divide(len(new.scopes))
        if self.leases is not None:
            self.leases.add([name for name, effect in changes.items() if effect == "begun"])
        pending = {name: anyio.Event() for name in changes}
        for name, done in pending.items():
            uses = _handlers_of(name, new, opened)
            begin = partial(self._begin, name, plans.get(name), uses, done)
            self.supervisor.change(name, begin, new.shutdown.grace_seconds)
        self.pool.sweep(self._in_use())
        return pending

    async def _begin(
        self,
        name: str,
        plan: ScopePlan | None,
        uses: Collection[OpenHandler],
        done: anyio.Event,
    ) -> Watcher | None:
        """The watcher of a scope after a change; its former one has ended."""
        if plan is None and self.leases is not None:
            await self.leases.remove(name)
        used = [each.plan.name for each in uses]
        self.runtime.metrics.retain(name, None if plan is None else used)
        self._used[name] = uses
        self.pool.sweep(self._in_use())
        done.set()
        return None if plan is None else Watcher(plan, self.runtime)

    def _in_use(self) -> Collection[OpenHandler]:
        return {each for uses in self._used.values() for each in uses}

    def _require_changeable(self) -> None:
        if reason := self.supervisor.unchangeable:
            raise ActionRefused(409, f"nothing was changed: {reason}")

    async def _one_line(self, error: ConfigurationError) -> str:
        """The message of ``tailrace check`` in one line."""
        located = partial(config.located, error, self.file)
        error = await anyio.to_thread.run_sync(located, limiter=self._thread)
        many = f"{len(error.problems)} problems: " if len(error.problems) > 1 else ""
        return f"{self.file}: {many}{'; '.join(map(str, error.problems))}"


def _handlers_of(
    scope: str, settings: Settings, opened: Mapping[str, OpenHandler]
) -> Collection[OpenHandler]:
    names = (name for route in settings.routes if route.scope == scope for name in route.handlers)
    return [opened[name] for name in dict.fromkeys(names)]


def _told(what: str, effects: Mapping[str, str]) -> Iterator[str]:
    """Who is affected, by effect; the rest is counted."""
    for effect in dict.fromkeys(effects.values()):
        names = [name for name, each in effects.items() if each == effect]
        if effect != "kept":
            yield f"{what} {effect}: {_list(names)}"


def _list(names: Collection[str]) -> str:
    return ", ".join(sorted(names))
