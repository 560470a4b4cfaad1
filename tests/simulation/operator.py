"""An operator: gives orders in every state, changes the configuration, repairs what is lawful."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator

import structlog
from bson.timestamp import Timestamp

from tailrace.control.desired_state import store_desired_state
from tailrace.control.follower import replay_refusal
from tailrace.control.outcome import ActionRefused
from tailrace.engine import WatcherState
from tailrace.model import Position, PositionKind
from tailrace.model.replay import ReplayRequest
from tests.simulation.process import Process
from tests.simulation.world import SimulatedScope, World


class Operator:
    """``processes``: those that run now. ``more`` makes the destination of a further handler."""

    def __init__(
        self,
        world: World,
        chance: random.Random,
        processes: Callable[[], list[Process]],
        more: Callable[[SimulatedScope], None],
    ) -> None:
        self._world = world
        self._random = chance
        self._processes = processes
        self._more = more
        self.counts: Counter[str] = Counter()

    async def order(self, what: str, of: str = "") -> None:
        """Gives an order for a scope, or for one of its handlers: that ``of`` the first scope, or
        ``"all"``."""
        scope = self._world.scopes[0] if of else self._random.choice(self._world.scopes)
        names = [each.name for each in scope.destinations]
        handler = self._random.choice([None, *names]) if not of else None if of == "all" else of
        process = self.follower(scope.name)
        state = process.state(scope.name).value if process is not None else "none"
        alone = "" if handler is None else " of a handler"
        self.counts[f"order {what}{alone} in state {state}"] += 1
        if what == "restart":
            if process is not None:
                process.restart(scope.name, handler)
        elif what == "seek":
            if changes := scope.expected.changes:
                await self.seek(scope, handler, scope.expected.time(self._random.choice(changes)))
        elif what.startswith("replay"):
            await self._replay(scope, handler or names[0], process, cancels=what != "replay")
        elif what.startswith("snapshot"):
            await self._snapshot(scope, handler, process, what.partition(" ")[2])
        else:
            await self._store(scope, {"paused": what == "pause"}, handler)

    async def seek(self, scope: SimulatedScope, handler: str | None, time: Timestamp) -> None:
        """Moves a scope, or a handler, to a time that the oplog has."""
        time = max(time, self._world.server.first)
        await self._store(scope, {"seek": Position(PositionKind.IDLE, None, None, time)}, handler)

    async def _snapshot(
        self, scope: SimulatedScope, handler: str | None, process: Process | None, action: str
    ) -> None:
        """As ``tailrace snapshot``; ``action`` is empty for a start."""
        watcher = process.supervisor.find(scope.name) if process is not None else None
        if watcher is None or watcher.status.state is WatcherState.HALTED:
            return
        if handler is None or handler in watcher.apart or len(watcher.plan.routed) == 1:
            rows = watcher.rows_of(handler)
        elif action:
            return
        elif routed := [each for each in watcher.plan.routed if each.name == handler]:
            rows = routed[0].rows()
        else:  # a reload that brings it has not come to this process yet
            return
        if action == "cancel":
            wanted = rows.cancel()
        else:
            wanted = rows.pause(paused=action == "pause") if action else rows.start((), "")
        if not isinstance(wanted, str):
            await self._store(scope, {"snapshot": wanted}, handler)

    async def _replay(
        self, scope: SimulatedScope, handler: str, process: Process | None, *, cancels: bool
    ) -> None:
        """As ``tailrace scopes replay``, of some span that the oplog has."""
        watcher = process.supervisor.find(scope.name) if process is not None else None
        routed = [] if watcher is None else [e for e in watcher.plan.routed if e.name == handler]
        if watcher is None or not routed or not watcher.claim.epoch:
            return
        request, is_wanted = None, watcher.replays.is_wanted(handler)
        if not cancels:
            commits = routed[0].handler.commit is not None and watcher.runs(handler)
            times = [scope.expected.time(each) for each in scope.expected.changes]
            times = [each for each in times if each >= self._world.server.first]
            if is_wanted or commits or replay_refusal(routed[0].handler) or not times:
                return
            request = ReplayRequest(*sorted(self._random.choice(times) for _ in range(2)))
        elif not is_wanted:
            return
        if generation := await self._store(scope, {"replay": request}, handler):
            scope.find(handler).ledger.replays.order(generation, request)

    async def _store(
        self, scope: SimulatedScope, changes: dict[str, object], handler: str | None
    ) -> int:
        """Stores what is wanted; processes read it within a second. Returns its generation; 0 if it
        was refused."""
        try:
            states = self._world.desired_states
            stored = await store_desired_state(states, scope.name, "ann", changes, handler)
        except ActionRefused:
            return 0
        structlog.get_logger().debug(
            "simulation.ordered",
            scope=scope.name,
            handler=handler,
            order=list(changes),
            generation=stored.desired.generation,
        )
        return stored.desired.generation

    def reload(self) -> None:
        """Adds, removes or changes a handler of a scope."""
        scope = self._random.choice(self._world.scopes)
        what = self._random.choice(["add", "remove", "bring back", "change"])
        if what == "remove" and len(scope.destinations) > 1:
            gone = self._random.choice(scope.destinations)
            scope.destinations.remove(gone)
            scope.removed.append(gone)
        elif what == "bring back" and scope.removed:
            scope.destinations.append(scope.removed.pop())
        elif what == "add" and len(scope.all) < 4:
            self._more(scope)
        elif what != "change":
            return
        process = self.follower(scope.name)
        state = process.state(scope.name).value if process is not None else "none"
        self.counts[f"order reload: {what} in state {state}"] += 1
        for each in self._processes():
            each.reload(scope.name)
        structlog.get_logger().debug("simulation.reloaded", scope=scope.name, change=what)

    # --- the end --------------------------------------------------------------------------------

    def follower(self, scope: str) -> Process | None:
        """The process that follows a scope."""
        found = [each for each in self._processes() if self.follows(each, scope)]
        return found[0] if found else None

    @staticmethod
    def follows(process: Process, scope: str) -> bool:
        """Whether a process follows a scope."""
        other = (WatcherState.STANDBY, WatcherState.STOPPED)
        return process.goes_on and process.state(scope) not in other

    def unlawful(self, process: Process) -> Iterator[str]:
        """What is halted without a reason to be."""
        for scope in self._world.scopes:
            if halted := process.halted(scope.name):
                # Even where it is skipped, a history that is lost again and again halts a scope.
                often = self._world.server.counts["cuts of the oplog"] > 1
                lost = self._has_lost_history and (often or not scope.shape.skip_lost_history)
                halts = any(scope.find(name).shape.failure.halt for name in halted)
                if not (lost or halts):
                    yield f"scope {scope.name}: {process.explanation(scope.name)}"

    async def repair(self) -> None:
        """Lets what has lost its history go on where the oplog begins, restarts what halted,
        resumes snapshots, and asks again for a reload that a process has refused."""
        for scope in self._world.scopes:
            for each in self._processes():
                if each.goes_on and not each.has_reloaded(scope):
                    each.reload(scope.name)
            process = self.follower(scope.name)
            for paused in () if process is None else process.paused_snapshots(scope.name):
                await self._snapshot(scope, paused, process, "resume")
            halted = process.halted(scope.name) if process is not None else []
            if process is None or not halted:
                continue
            if self._has_lost_history and not scope.shape.skip_lost_history:
                for name in halted:
                    self.counts["repairs of a lost history"] += 1
                    await self.seek(scope, name, self._world.server.first)
            process.restart(scope.name)

    async def resume(self) -> None:
        """Ends all pauses."""
        for scope in self._world.scopes:
            await self._store(scope, {"paused": False}, None)

    @property
    def _has_lost_history(self) -> bool:
        return self._world.server.counts["positions without history"] > 0
