"""Reloads the configuration, one reload after another.

Whatever can fail comes first: the file is read and checked, a new client of the source is tried,
and new handlers are opened beside the old ones. Then each changed scope is drained and restarted
from its checkpoint, in its own task. A handler or client is closed when no scope uses it any more.
"""

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread

from tailrace.config.loading import located
from tailrace.config.settings import Settings
from tailrace.config.subscriptions import most_streams
from tailrace.control.outcome import ActionRefused, Done
from tailrace.drivers import CommandDriver
from tailrace.engine import Runtime, ScopePlan, Supervisor, Watcher
from tailrace.errors import ConfigurationError, StartRefused, TailraceError, describe
from tailrace.handlers.open_handler import OpenHandler
from tailrace.handlers.pool import HandlerPool, Key, handlers_of
from tailrace.reload.clients import Clients, OpenClient
from tailrace.reload.code_files import code_files
from tailrace.reload.desired_config import DesiredConfig
from tailrace.reload.difference import ReloadChanges, difference, listed
from tailrace.replicas.leases import Leases
from tailrace.source_settings import require_readable
from tailrace.tracing import Tracing, plans, watcher

T = TypeVar("T")

SPARE_STREAMS = 64
"""How many streams a process has connections for, beside those of the scopes it starts with."""

_OPENING_SECONDS = 10.0
"""How long opening all new handlers and the new client may take. Until then the old ones go on."""
_READING_SECONDS = 10.0
"""How long reading the file, and importing targets, may take."""
_LOOK_SECONDS = 0.01
_PATIENCE_SECONDS = 2.0
"""How long the answer waits for scopes to restart, after the grace period of their drain."""
_MOST_PATIENCE_SECONDS = 30.0
_SWITCH_SECONDS = 0.0002
"""How long a thread of the reload computes before the event loop, or a thread of the driver, may
run. With Python's 5 ms an event, which takes several turns, would wait for 20 ms."""


@dataclass(eq=False)
class Reloader:
    """Reloads the configuration ``file`` of a process that runs with what was wanted until ``now``.

    ``apply`` takes over what belongs to no scope.
    """

    file: str
    now: DesiredConfig
    pool: HandlerPool
    clients: Clients
    supervisor: Supervisor
    runtime: Runtime
    leases: Leases | None
    apply: Callable[[Settings, Runtime, CommandDriver], None]
    tracing: Tracing | None = None
    _lock: anyio.Lock = field(default_factory=anyio.Lock)
    _used: dict[str, Collection[object]] = field(init=False)
    """By scope, the handlers and the client that its watcher uses."""
    _code: dict[str, str] = field(init=False)
    """Digests of files of modules, by path, when they were first seen loaded."""

    def __post_init__(self) -> None:
        files = code_files(self.now.settings.handlers).values()
        self._code = {path: digest for each in files for path, digest in each.items()}
        self._used = {each.name: self._uses(each.name) for each in self.now.settings.scopes}

    async def reload(self, *, dry_run: bool) -> Done:
        """Applies the file as it is now, or says what that would change.

        Raises :class:`ActionRefused`; then everything goes on as before. A second call waits for
        the first one, and compares with what that has applied.
        """
        async with self._lock:
            try:
                return await self._reload(dry_run=dry_run)
            except ActionRefused:
                raise
            except ConfigurationError as error:
                raise ActionRefused(422, await self._one_line(error)) from error
            except TailraceError as error:
                passes = not isinstance(error, StartRefused) or error.may_pass
                then = ": reload again when it answers" if passes else ""
                message = f"{describe(error)}. Nothing was changed{then}"
                raise ActionRefused(503 if passes else 422, message) from error

    async def _reload(self, *, dry_run: bool) -> Done:
        new, difference = await self._read_in_time()
        details = {"dry_run": dry_run, **difference.document()}
        await require_readable(new.settings, self.runtime.now)
        if dry_run:
            return Done(f"{difference}. Dry run: nothing was changed", details=details)
        self._require_changeable()
        pending = self._begin_all(difference, new, *await self._open(difference, new))
        patience = new.settings.shutdown.grace_seconds + _PATIENCE_SECONDS
        with anyio.move_on_after(min(patience, _MOST_PATIENCE_SECONDS)):
            for done in pending.values():
                await done.wait()
            while self._without_start(pending):  # noqa: ASYNC110 - rare, and soon over
                await anyio.sleep(_LOOK_SECONDS)
        late = [name for name, done in pending.items() if not done.is_set()]
        message = f"{difference}"
        if late:
            message += (
                f". Still draining, and done when its handler calls have ended: {listed(late)}"
            )
        if unknown := self._without_start(pending):
            message += (
                ". Not begun yet, and what is written before that does not come: "
                f"{listed(unknown)}; /status says why"
            )
        return Done(message, after=str(difference), details={**details, "draining": late})

    def _without_start(self, pending: Mapping[str, anyio.Event]) -> list[str]:
        """The scopes that have changed, and for which it is not stored where they begin."""
        changed = [self.supervisor.find(name) for name, done in pending.items() if done.is_set()]
        return [each.name for each in changed if each is not None and not each.begins_somewhere]

    async def _read_in_time(self) -> tuple[DesiredConfig, ReloadChanges]:
        """What the file says now, and how that differs.

        The import of a module may never end. Then its thread is left behind.
        """
        now = ["it was still being read"]
        try:
            with anyio.fail_after(_READING_SECONDS):
                return await self._in_thread(partial(self._read, now.append))
        except TimeoutError:
            message = f"{self.file}: {now[-1]} after {_READING_SECONDS:g} s. Nothing was changed"
            advice = "a module whose import never ends is imported again only by a restart"
            raise ActionRefused(422, f"{message}. Correct that, and reload; {advice}") from None

    def _read(self, begun: Callable[[str], None]) -> tuple[DesiredConfig, ReloadChanges]:
        """Reads the file, and tells what is begun. Blocks."""
        new = DesiredConfig.read(self.file, begun)
        found = difference(self.now, new, self.pool, self.clients.streams)
        return new, replace(found, code=self._changed_code(new.settings))

    def _changed_code(self, settings: Settings) -> Mapping[str, Collection[str]]:
        """By handler, the files of its modules that have changed since they were loaded."""
        changed = dict[str, Collection[str]]()
        for name, digests in code_files(settings.handlers).items():
            if found := [
                path for path, now in digests.items() if self._code.setdefault(path, now) != now
            ]:
                changed[name] = found
        return changed

    async def _in_thread(self, call: Callable[[], T]) -> T:
        """Makes a call that computes for longer than the scopes may wait."""
        usual, limiter = sys.getswitchinterval(), anyio.CapacityLimiter(1)
        sys.setswitchinterval(_SWITCH_SECONDS)
        try:
            return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=limiter)
        finally:
            sys.setswitchinterval(usual)

    async def _open(
        self, difference: ReloadChanges, new: DesiredConfig
    ) -> tuple[Mapping[Key, OpenHandler], OpenClient]:
        """All handlers and the client, those that changed opened. If one cannot be, none is."""
        same = [name for name, effect in difference.handlers.items() if effect == "kept"]
        plans, client = new.handlers.values(), self.clients.now
        try:
            with anyio.fail_after(_OPENING_SECONDS):
                if difference.client:
                    scopes = set(difference.begun) - set(self.supervisor.halted)
                    client = await self.clients.open_instead(new.client, new.settings, scopes)
                handlers = await self.pool.add(plans, new.settings.delivery, same)
            self._require_changeable()  # the process may have been stopped meanwhile
        except BaseException as error:
            await self.pool.discard()
            if client is not self.clients.now:
                await self.clients.discard(client)
            if isinstance(error, Exception):
                self._require_changeable()  # else the end of the process is the cause
            if isinstance(error, TimeoutError):
                names = [
                    f"handlers.{plan.name}"
                    for plan in plans
                    if plan.name not in same
                    or any((each.name, plan.name) not in self.pool.open for each in plan.follows)
                ]
                names += ["mongodb.uri"] if difference.client else []
                message = f"could not be opened within {_OPENING_SECONDS:g} s: {', '.join(names)}"
                raise StartRefused(message, may_pass=True) from None
            raise
        return handlers, client

    def _begin_all(
        self,
        difference: ReloadChanges,
        new: DesiredConfig,
        handlers: Mapping[Key, OpenHandler],
        client: OpenClient,
    ) -> Mapping[str, anyio.Event]:
        """Begins all changes; gives, by scope, what is set when its change is done."""
        settings, server, delivery = new.settings, client.driver, new.settings.delivery
        changes = {
            name: each.effect for name, each in difference.scopes.items() if each.effect != "kept"
        }
        # Only these: a hundred plans would keep the event loop busy for milliseconds.
        of_scope, tracing = handlers_of(handlers, delivery), self.tracing
        changed = plans(settings, of_scope, server, tracing, changes)
        planned = {plan.scope.name: plan for plan in changed}
        self.now = new
        self.runtime = replace(self.runtime, driver=server)
        self.apply(settings, self.runtime, server)
        self.pool.use(handlers)
        self.clients.use(client)
        self.runtime.budget.divide(most_streams(settings), delivery.max_in_flight_bytes)
        if self.leases is not None:
            self.leases.drain_within(settings.shutdown.grace_seconds)
            self.leases.add([name for name, effect in changes.items() if effect == "begun"])
        pending = {name: anyio.Event() for name in changes}
        for name, done in pending.items():
            uses = self._uses(name) if name in planned else ()
            begin = partial(self._begin, name, planned.get(name), uses, done)
            self.supervisor.change(name, begin, settings.shutdown.grace_seconds)
        self._sweep()
        return pending

    async def _begin(
        self,
        name: str,
        plan: ScopePlan | None,
        uses: Collection[object],
        done: anyio.Event,
    ) -> Watcher | None:
        """The watcher of a scope after a change; its former one has ended, but not its replays."""
        await self.supervisor.end_side_calls(name, self.now.settings.shutdown.grace_seconds)
        configured = {each.name for each in self.now.settings.scopes}  # also by a later reload
        if plan is None and self.leases is not None and name not in configured:
            await self.leases.remove(name)
        used = None if plan is None else [each.handler.name for each in plan.routed]
        self.runtime.metrics.retain(name, used)
        self._used[name] = uses
        self._sweep()
        done.set()
        return None if plan is None else watcher(plan, self.runtime, self.tracing)

    def _uses(self, scope: str) -> Collection[object]:
        """What the runs of a scope use that begin now."""
        return [self.clients.now, *(h for (of, _), h in self.pool.open.items() if of == scope)]

    def _sweep(self) -> None:
        used = {each for uses in self._used.values() for each in uses}
        self.pool.sweep(used)
        self.clients.sweep(used)

    def _require_changeable(self) -> None:
        if reason := self.supervisor.unchangeable:
            raise ActionRefused(409, f"nothing was changed: {reason}")

    async def _one_line(self, error: ConfigurationError) -> str:
        """The message of ``tailrace check`` in one line."""
        error = await self._in_thread(partial(located, error, self.file))
        many = f"{len(error.problems)} problems: " if len(error.problems) > 1 else ""
        return f"{self.file}: {many}{'; '.join(map(str, error.problems))}"
