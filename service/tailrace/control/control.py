"""The actions. Each is done as a whole, or refused with :class:`ActionRefused`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import anyio
from anyio.abc import TaskGroup

from tailrace.control.bodies import (
    LetterBody,
    LettersBody,
    LettersQuery,
    ReplayBody,
    SeekBody,
    WhyQuery,
)
from tailrace.control.effects import effect, progress
from tailrace.control.letters import DeadLetters
from tailrace.control.orders import give
from tailrace.control.outcome import ActionRefused, Done
from tailrace.control.seeking import Seeking, positions_of
from tailrace.control.server_positions import ServerPositions, moment
from tailrace.control.skipping import SkipBody, find_unsendable
from tailrace.control.snapshot_orders import SnapshotOrders
from tailrace.control.span import find_span
from tailrace.control.spans import (
    SpanReplay,
    find_handler,
    require_followed,
    require_here,
)
from tailrace.engine import (
    CommandRunner,
    Runtime,
    Supervisor,
    Watcher,
    WatcherState,
)
from tailrace.errors import CheckpointError, DeadLetterError, describe
from tailrace.why.followed import followed
from tailrace.why.inquiry import Inquiry
from tailrace.why.key import read_key

_STARTING = ActionRefused(409, "the service is starting: ask again when /readyz answers 200")
_STILL = {WatcherState.HALTED, WatcherState.STANDBY, WatcherState.STOPPED}
"""The states in which no run here can obey."""


class Reload(Protocol):
    """Reloads the configuration of the process; see :meth:`Control.reload`."""

    async def __call__(self, *, dry_run: bool) -> Done:
        """Raises :class:`ActionRefused`."""


@dataclass(slots=True)
class Control:
    """The actions of one running process. ``supervisor`` follows its scopes.

    ``runtime`` is what its watchers share, ``server`` the source; ``None`` until the service has
    started. ``inquiries``: by scope, what can be asked about its documents. ``by``: who asks. An
    answer waits for ``patience_seconds`` until an order is obeyed.
    """

    supervisor: Supervisor
    runtime: Runtime | None = None
    reloads: Reload | None = None
    server: CommandRunner | None = None
    inquiries: Mapping[str, Inquiry] = field(default_factory=dict)
    letters: DeadLetters | None = None
    tasks: TaskGroup | None = None
    """Runs replays; they end with the process."""
    spans: dict[str, SpanReplay] = field(default_factory=dict)
    """By scope, its last replay of a span of time."""
    patience_seconds: float = 5.0
    snapshots: SnapshotOrders | None = None

    async def reload(self, *, dry_run: bool) -> Done:
        """Applies what has changed in the configuration, or says what that is."""
        if self.reloads is None:
            raise _STARTING
        return await self.reloads(dry_run=dry_run)

    async def restart(self, scope: str, by: str, wait: float | None = None) -> Done:
        """Restarts a halted scope from its checkpoint."""
        watcher = self._watcher(scope)
        require_here(watcher)
        before = watcher.status.state.value
        if reason := self.supervisor.restart(scope):
            raise ActionRefused(409, reason)
        state, _ = await self._until(self._watcher(scope), _begun, wait or 0.0)
        details = {"state": state.value}
        return Done(f"scope {scope!r} starts again", before, state.value, details)

    async def pause(self, scope: str, by: str, wait: float | None = None) -> Done:
        """Drains and saves the scope, and reads nothing more until it is resumed."""
        return await self._pause(scope, by, wait, paused=True)

    async def resume(self, scope: str, by: str, wait: float | None = None) -> Done:
        """Lets a paused scope continue."""
        return await self._pause(scope, by, wait, paused=False)

    async def _pause(self, scope: str, by: str, wait: float | None, *, paused: bool) -> Done:
        watcher, runtime = self._ordered(scope)
        before = watcher.status.state.value
        given = await give(runtime.orders, scope, by, {"paused": paused})
        watcher.obey(given.order)
        word = "paused" if paused else "resumed"
        state, done = await self._until(
            watcher, lambda of: (of.status.state is WatcherState.PAUSED) is paused, wait
        )
        message = effect(watcher, given, word, state, done=done)
        details = {"state": state.value, **progress(given, done=done)}
        return Done(message, before, state.value, details)

    async def seek(self, scope: str, body: SeekBody, by: str) -> Done:
        """Lets the scope continue at another position."""
        watcher, runtime = self._ordered(scope)
        seeking = Seeking(
            self._positions(watcher, runtime),
            [each.handler.name for each in watcher.plan.routed],
            runtime.store,
            runtime.orders,
            watcher.status.reached,
        )
        sought = await seeking.find(body)
        details: dict[str, Any] = {**sought.details, "dry_run": body.dry_run}
        before, after = sought.named
        if body.dry_run:
            message = f"scope {scope!r}: {sought.effect}. Dry run: nothing was changed"
            return Done(message, before, f"{after} (dry run)", details)
        given = await give(runtime.orders, scope, by, sought.order)
        watcher.obey(given.order)
        number = given.order.sought
        state, done = await self._until(watcher, lambda of: of.obeyed >= number, body.wait)
        if done:  # where it was is known only now: handler calls that were running have ended
            sought = await seeking.obeyed(sought, number)
            details |= sought.details
        message = f"{effect(watcher, given, 'moved', state, done=done)}: {sought.effect}"
        details |= {"state": state.value, **progress(given, done=done)}
        return Done(message, before, after, details)

    async def skip(self, scope: str, body: SkipBody, by: str) -> Done:
        """Sets the next change aside, if the server cannot send it, and goes on after it."""
        watcher, runtime = self._ordered(scope)
        found = await find_unsendable(self._positions(watcher, runtime), runtime.store)
        if body.dry_run:
            return found.done()
        given = await give(runtime.orders, scope, by, found.order)
        watcher.obey(given.order)
        if watcher.status.state is WatcherState.HALTED:
            self.supervisor.restart(scope, by)
            watcher = self._watcher(scope)
        number = given.order.number
        state, done = await self._until(watcher, lambda of: of.obeyed >= number, body.wait)
        return found.done(effect(watcher, given, "moved", state, done=done))

    async def replay(self, scope: str, body: ReplayBody, by: str) -> Done:
        """Hands the changes of a span of time to one handler again, beside the scope."""
        watcher, runtime = self._ordered(scope)
        require_here(watcher)
        if body.cancel:
            if (running := self._replaying(scope)) is None:
                raise ActionRefused(409, f"scope {scope!r}: no replay is running")
            running.scope.cancel()
            return Done(f"scope {scope!r}: its replay is cancelled", "running", "cancelled")
        if body.since is None or body.handler is None:
            raise ActionRefused(400, "give from and handler, or cancel")
        routed = find_handler(watcher, body.handler)
        found = await find_span(self._positions(watcher, runtime), body)
        span = SpanReplay(
            watcher, runtime, found, routed, by, lambda: self.supervisor.find(scope) is watcher
        )
        if body.dry_run:
            message = f"scope {scope!r}: {span.effect}. Dry run: nothing was handed over"
            return Done(message, details=span.document())
        if self._replaying(scope) is not None or self.tasks is None:
            message = f"scope {scope!r}: a replay is running: wait for its end, or cancel it"
            raise ActionRefused(409, message)
        require_followed(watcher)
        self.spans[scope] = span
        self.tasks.start_soon(span.run, name=f"replay of scope {scope}")
        message = f"scope {scope!r}: {span.effect}; GET /scopes/{scope}/replay shows how far it is"
        return Done(message, moment(found.since), moment(found.until), span.document())

    def _replaying(self, scope: str) -> SpanReplay | None:
        last = self.spans.get(scope)
        return last if last is not None and last.state == "running" else None

    async def span(self, scope: str) -> Mapping[str, Any]:
        """The last replay of a span, in JSON types."""
        watcher, span = self._watcher(scope), self.spans.get(scope)
        if span is None:
            require_here(watcher)
        return {"scope": scope, "replay": span.document() if span is not None else None}

    def _positions(self, watcher: Watcher, runtime: Runtime) -> ServerPositions:
        plan = watcher.plan
        return ServerPositions(
            plan.scope, plan.options, runtime.driver, runtime.clock.now, self.server
        )

    async def positions(self, scope: str) -> Mapping[str, Any]:
        """Where the scope is and was, the latest first."""
        _, runtime = self._ordered(scope)
        return await positions_of(scope, runtime.store, runtime.orders)

    async def why(self, scope: str, query: WhyQuery) -> Mapping[str, Any]:
        """What became of a document, in JSON types."""
        watcher = self._watcher(scope)
        if (inquiry := self.inquiries.get(scope)) is None:
            raise _STARTING
        elsewhere = watcher.status.reason or "another process follows the scope"
        now = replace(inquiry, followed=followed(watcher), elsewhere=elsewhere)
        try:
            answer = await now.answer(read_key(query.key), query.collection, query.seconds)
        except ValueError as error:
            raise ActionRefused(400, str(error)) from error
        except (CheckpointError, DeadLetterError) as error:
            raise ActionRefused(503, describe(error)) from error
        return answer.to_document()

    async def dead_letters(self, query: LettersQuery) -> str:
        """A page of the dead letters that wait, as JSON."""
        return await self._letters.show(query)

    async def replay_letter(self, id: str, body: LetterBody, by: str) -> Done:
        """Hands a dead letter, and all others of its document, to the handler again."""
        return await self._letters.replay_one(id, body, by)

    async def discard_letter(self, id: str, body: LetterBody, by: str) -> Done:
        """Removes a dead letter for good."""
        return await self._letters.discard_one(id, body)

    async def replay_letters(self, body: LettersBody, by: str) -> Done:
        """Hands the dead letters that are meant to their handlers again."""
        return await self._letters.replay(body, by)

    async def discard_letters(self, body: LettersBody, by: str) -> Done:
        """Removes the dead letters that are meant for good."""
        return await self._letters.discard(body)

    @property
    def _letters(self) -> DeadLetters:
        if self.runtime is None:
            raise _STARTING
        if self.letters is None:
            order = self._snapshots(self.runtime).store
            self.letters = DeadLetters(self.supervisor, self.runtime.letters, order)
        return self.letters

    async def snapshot(
        self, scope: str, action: str, collections: tuple[str, ...], filter: str, by: str
    ) -> Done:
        """Starts, pauses, resumes or cancels a scope's snapshot."""
        watcher, runtime = self._ordered(scope)
        return await self._snapshots(runtime).ask(watcher, action, collections, filter, by)

    def _snapshots(self, runtime: Runtime) -> SnapshotOrders:
        self.snapshots = self.snapshots or SnapshotOrders(runtime.orders)
        return self.snapshots

    async def _until(
        self, watcher: Watcher, obeyed: Callable[[Watcher], bool], wait: float | None
    ) -> tuple[WatcherState, bool]:
        """Waits for a while until an order is obeyed; returns the state then, and whether it is."""
        with anyio.move_on_after(self.patience_seconds if wait is None else wait):
            while not obeyed(watcher) and watcher.status.state not in _STILL:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        state = watcher.status.state
        elsewhere = state in (WatcherState.STANDBY, WatcherState.HALTED)
        return state, not elsewhere and obeyed(watcher)

    def _ordered(self, scope: str) -> tuple[Watcher, Runtime]:
        """The scope's watcher, whose process need not be the one that obeys the order."""
        watcher = self._watcher(scope)
        if self.runtime is None:
            raise _STARTING
        if watcher.status.state is WatcherState.STOPPED:
            raise ActionRefused(409, f"scope {scope!r} is stopped: it is not followed any more")
        return watcher, self.runtime

    def _watcher(self, scope: str) -> Watcher:
        if not self.supervisor.watchers:
            raise _STARTING
        found = self.supervisor.find(scope)
        if found is None:
            names = ", ".join(each.name for each in self.supervisor.watchers)
            raise ActionRefused(404, f"there is no scope {scope!r}; there are: {names}")
        return found


def _begun(watcher: Watcher) -> bool:
    return watcher.status.state is not WatcherState.STARTING
