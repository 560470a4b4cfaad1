"""The actions. Each is done as a whole, or refused with :class:`ActionRefused`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tailrace.control.bodies import (
    HandlerQuery,
    LetterBody,
    LettersBody,
    LettersQuery,
    OrderBody,
    ReplayBody,
    SeekBody,
    SnapshotBody,
    WhyQuery,
)
from tailrace.control.effects import progress, told
from tailrace.control.follower import require_here
from tailrace.control.letters import DeadLetters
from tailrace.control.orders import give
from tailrace.control.outcome import ActionRefused, Done
from tailrace.control.replays import ReplayOrders, replay_document
from tailrace.control.seeking import Seeking, positions_of
from tailrace.control.server_positions import ServerPositions
from tailrace.control.skipping import SkipBody, find_unsendable
from tailrace.control.snapshot_orders import SnapshotOrders
from tailrace.control.subject import Subject
from tailrace.engine import (
    CommandRunner,
    Runtime,
    Supervisor,
    Watcher,
    WatcherState,
)
from tailrace.errors import CheckpointError, DeadLetterError, describe
from tailrace.event.key import read_key
from tailrace.why.followed import followed
from tailrace.why.inquiry import Inquiry

_STARTING = ActionRefused(409, "the service is starting: ask again when /readyz answers 200")


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
    patience_seconds: float = 5.0
    snapshots: SnapshotOrders | None = None
    replays: ReplayOrders | None = None

    async def reload(self, *, dry_run: bool) -> Done:
        """Applies what has changed in the configuration, or says what that is."""
        if self.reloads is None:
            raise _STARTING
        return await self.reloads(dry_run=dry_run)

    async def restart(self, scope: str, body: OrderBody, by: str) -> Done:
        """Restarts what is halted of a scope, or a handler of it, from its position."""
        subject = Subject(self._watcher(scope), body.handler)
        require_here(subject.watcher)
        before = subject.status.state.value
        if reason := self.supervisor.restart(scope, handler=body.handler):
            raise ActionRefused(409, reason)
        again = Subject(self._watcher(scope), body.handler)
        effect = await again.until(lambda name: _begun(again.watcher, name), body.wait or 0.0)
        state = effect.status.state.value
        return Done(f"{again} starts again", before, state, {"state": state})

    async def pause(self, scope: str, body: OrderBody, by: str) -> Done:
        """Drains and saves the scope or a handler, which gets nothing more until it is resumed."""
        return await self._pause(scope, body, by, paused=True)

    async def resume(self, scope: str, body: OrderBody, by: str) -> Done:
        """Lets a paused scope continue with all its handlers, or one handler."""
        return await self._pause(scope, body, by, paused=False)

    async def _pause(self, scope: str, body: OrderBody, by: str, *, paused: bool) -> Done:
        subject, runtime = self._ordered(scope, body.handler)
        before = subject.status.state.value
        given = await give(runtime.orders, scope, by, {"paused": paused}, body.handler)
        watcher = subject.watcher
        watcher.obey(given.order)
        word = "paused" if paused else "resumed"
        effect = await subject.until(
            lambda name: (watcher.status_of(name).state is WatcherState.PAUSED) is paused,
            self._patience(body),
        )
        details = progress(given, effect)
        return Done(told(subject, given, word, effect), before, details["state"], details)

    async def seek(self, scope: str, body: SeekBody, by: str) -> Done:
        """Lets the scope, or a handler of it, continue at another position."""
        subject, runtime = self._ordered(scope, body.handler)
        watcher = subject.watcher
        seeking = Seeking(
            self._positions(watcher, runtime),
            [name for name in subject.handlers if name],
            runtime.store,
            runtime.orders,
            lambda name: (watcher.status_of(name) if name else watcher.status).reached(name),
            body.handler,
        )
        sought = await seeking.find(body)
        details: dict[str, Any] = {**sought.details, "dry_run": body.dry_run}
        before, after = sought.named
        if body.dry_run:
            message = f"{subject}: {sought.effect}. Dry run: nothing was changed"
            return Done(message, before, f"{after} (dry run)", details)
        given = await give(runtime.orders, scope, by, sought.order, body.handler)
        watcher.obey(given.order)
        number = given.order.number
        effect = await subject.until(
            lambda name: watcher.obeyed_by(name) >= number, self._patience(body)
        )
        if effect.done:  # where it was is known only now: running handler calls have ended
            sought = await seeking.obeyed(sought, number)
            details |= sought.details
        message = f"{told(subject, given, 'moved', effect)}: {sought.effect}"
        return Done(message, before, after, {**details, **progress(given, effect)})

    async def skip(self, scope: str, body: SkipBody, by: str) -> Done:
        """Sets the next change aside, if the server cannot send it, and goes on after it."""
        subject, runtime = self._ordered(scope, body.handler)
        server = self._positions(subject.watcher, runtime)
        found = await find_unsendable(server, runtime.store, body.handler)
        if body.dry_run:
            return found.done()
        given = await give(runtime.orders, scope, by, found.order, body.handler)
        subject.watcher.obey(given.order)
        if subject.status.state is WatcherState.HALTED:
            self.supervisor.restart(scope, handler=body.handler)
            subject = Subject(self._watcher(scope), body.handler)
        watcher, number = subject.watcher, given.order.number
        effect = await subject.until(
            lambda name: watcher.obeyed_by(name) >= number, self._patience(body)
        )
        return found.done(told(subject, given, "moved", effect))

    async def replay(self, scope: str, body: ReplayBody, by: str) -> Done:
        """Hands the changes of a span of time to one handler again, beside the scope."""
        subject, runtime = self._ordered(scope)
        self.replays = self.replays or ReplayOrders(runtime.orders)
        server = self._positions(subject.watcher, runtime)
        return await self.replays.ask(subject.watcher, server, body, by)

    async def last_replay(self, scope: str, query: HandlerQuery) -> Mapping[str, Any]:
        """The last replay of a span, to one of the handlers or to this one, in JSON types."""
        subject, _ = self._ordered(scope, query.handler)
        watcher, last = subject.watcher, {}
        require_here(watcher)
        for name in subject.handlers:
            if (replay := watcher.replays.last(name)) is not None:
                last[replay.number] = replay_document(watcher, name)
        return {"scope": scope, "replay": last[max(last)] if last else None}

    def _positions(self, watcher: Watcher, runtime: Runtime) -> ServerPositions:
        plan = watcher.plan
        return ServerPositions(
            plan.scope, plan.options, runtime.driver, runtime.clock.now, self.server
        )

    async def positions(self, scope: str, query: HandlerQuery) -> Mapping[str, Any]:
        """Where the scope's handlers are and were, or one of them, the latest first."""
        _, runtime = self._ordered(scope, query.handler)
        return await positions_of(scope, runtime.store, runtime.orders, query.handler)

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

    async def snapshot(self, scope: str, body: SnapshotBody, by: str) -> Done:
        """Starts, pauses, resumes or cancels a snapshot of a scope, or of one handler."""
        subject, runtime = self._ordered(scope, body.handler)
        return await self._snapshots(runtime).ask(subject, body, by)

    def _snapshots(self, runtime: Runtime) -> SnapshotOrders:
        self.snapshots = self.snapshots or SnapshotOrders(runtime.orders)
        return self.snapshots

    def _patience(self, body: OrderBody) -> float:
        return self.patience_seconds if body.wait is None else body.wait

    def _ordered(self, scope: str, handler: str | None = None) -> tuple[Subject, Runtime]:
        """The scope, or its handler, whose process need not be the one that obeys the order."""
        subject = Subject(self._watcher(scope), handler)
        if self.runtime is None:
            raise _STARTING
        if subject.watcher.status.state is WatcherState.STOPPED:
            raise ActionRefused(409, f"scope {scope!r} is stopped: it is not followed any more")
        return subject, self.runtime

    def _watcher(self, scope: str) -> Watcher:
        if not self.supervisor.watchers:
            raise _STARTING
        found = self.supervisor.find(scope)
        if found is None:
            names = ", ".join(each.name for each in self.supervisor.watchers)
            raise ActionRefused(404, f"there is no scope {scope!r}; there are: {names}")
        return found


def _begun(watcher: Watcher, handler: str) -> bool:
    return watcher.status_of(handler).state is not WatcherState.STARTING
