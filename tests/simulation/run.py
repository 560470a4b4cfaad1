"""One run of the simulation: changes, processes and an operator, beside all the faults."""

from __future__ import annotations

import hashlib
import random
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import structlog
from bson.timestamp import Timestamp

from tailrace.engine import WatcherState
from tailrace.testing.oplog import Oplog
from tests.simulation.destinations import Destination, Shape
from tests.simulation.determinism import deterministic
from tests.simulation.event_loop import Stuck, VirtualLoop
from tests.simulation.expected import Expected, Violation
from tests.simulation.faults import Faults
from tests.simulation.ledger import Reasons
from tests.simulation.logs import Logs
from tests.simulation.operator import Operator
from tests.simulation.process import PROCESS, Process
from tests.simulation.scenario import Part, Scenario, scenario
from tests.simulation.source import Server
from tests.simulation.world import ScopeShape, SimulatedScope, World, until
from tests.simulation.writer import Writer

PATIENCE_SECONDS = 600.0
"""So long after the last fault everything must be handled."""


@dataclass(slots=True)
class Result:
    """What a run has shown. ``failure`` is empty if all promises held."""

    seed: int
    failure: str = ""
    covered: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    seconds: float = 0.0
    """Virtual ones."""
    digest: str = ""
    """Of everything that the handlers got, and when: the same in each run of a seed."""
    logs: Sequence[Any] = ()


def simulate(seed: int) -> Result:
    """Runs one seed."""
    return run(scenario(seed))


def run(of: Scenario) -> Result:
    """Runs one scenario."""
    loop = VirtualLoop(of.seed)
    simulation = None
    result = Result(of.seed)
    began = loop.time()
    logs = Logs(began)
    with deterministic(of.seed, loop.time), logs.captured():
        try:
            simulation = Simulation(of, loop, logs)
            loop.run(simulation.run())
        except Exception as error:  # noqa: BLE001 - reported, whatever it is
            result.failure = _described(error)
    result.logs = logs.entries
    result.steps, result.seconds = loop.steps, loop.time() - began
    if simulation is not None:
        result.covered = simulation.covered(logs)
        result.digest = simulation.digest(loop)
    return result


def _described(error: BaseException) -> str:
    """The innermost error; one that is neither a violation nor a stand-still, with its place."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, Violation | Stuck):
        return f"{type(error).__name__}: {error}"
    return "".join(traceback.format_exception(error))


class Simulation:
    """The parts of one run."""

    def __init__(self, of: Scenario, loop: VirtualLoop, logs: Logs) -> None:
        self.of = of
        self._loop = loop
        self._began = loop.time()
        self._oplog = oplog = Oplog()
        self._reasons = reasons = Reasons()
        server = Server(
            oplog,
            self._faults("server", of.server),
            self._began,
            of.most_streams,
            2 if of.upgrade is None else 1,
            of.refuses_late,
            reasons.note,
        )
        scopes = [
            self._scope(shape, parts)
            for shape, parts in zip(of.scopes, of.destinations, strict=True)
        ]
        store = self._faults("store", of.store)
        leases = self._faults("leases", of.leases) if of.members else None
        self.world = World(oplog, server, store, leases, scopes, reasons, loop.time, of.budget)
        logs.world = self.world
        self.writer = Writer(oplog, server, self._random_of("writer"), of)
        self.operator = Operator(
            self.world, self._random_of("operator"), lambda: self.running, self._add_handler
        )
        self.processes: list[Process] = []
        """All of them, also those that have ended."""
        self._unchecked: list[Process] = []
        """Those that had not ended when they were last checked."""
        self.counts: Counter[str] = Counter()

    def _scope(self, shape: ScopeShape, parts: Sequence[Part]) -> SimulatedScope:
        of = SimulatedScope(shape, Expected(self._oplog, shape.scope), [])
        for each, part in zip(shape.shapes, parts, strict=True):
            of.destinations.append(self._destination(of, each, part))
        return of

    def _destination(self, of: SimulatedScope, shape: Shape, part: Part) -> Destination:
        name = f"{shape.kind}-{len(of.all)}".replace(" ", "-")
        faults = self._faults(f"destination {of.name} {name}", part)
        return Destination(name, shape, faults, of.expected, self._reasons)

    def _add_handler(self, of: SimulatedScope) -> None:
        """Configures a further handler, like one that is there."""
        of.destinations.append(self._destination(of, of.all[0].shape, Part()))

    @property
    def running(self) -> list[Process]:
        """The processes that go on."""
        return [each for each in self.processes if each.goes_on]

    async def run(self) -> None:
        """The changes and faults, then a time without faults, in which everything must be handled,
        then a clean stop, and further processes."""
        of = self.of
        self.writer.write(of.before)
        members = [f"member-{n}" for n in range(max(of.members, 1))]
        async with anyio.create_task_group() as tasks:
            with anyio.move_on_after(of.seconds):
                async with anyio.create_task_group() as trouble:
                    trouble.start_soon(self.writer.run)
                    for member in members:
                        trouble.start_soon(self._processes, tasks, member)
                    trouble.start_soon(self._orders)
                    trouble.start_soon(self._elections)
                    trouble.start_soon(self._cuts)
                    trouble.start_soon(self._upgrade)
                    for restored in self.of.restores:
                        trouble.start_soon(self._restore, *restored)
                    trouble.start_soon(self._sleeps)
                    trouble.start_soon(self._crashes)
                    trouble.start_soon(anyio.sleep_forever)
            await self._heal(tasks, members)
            await self._handled(tasks, members)
            await self._stopped()
            for member in members:
                self._start(tasks, member)
            self.writer.write(5)
            await self._handled(tasks, members)
            await self._stopped()
            tasks.cancel_scope.cancel()

    # --- processes ------------------------------------------------------------------------------

    async def _processes(self, tasks: anyio.abc.TaskGroup, member: str) -> None:
        """One after another, each with its own end."""
        of, chance = self.of, self._random_of(f"processes {member}")
        while True:
            process = self._start(tasks, member)
            if of.kills and chance.random() < 0.7:
                steps = int(chance.expovariate(1 / of.kills)) + 1
                self._loop.interrupt(self._loop.steps + steps, partial(self._kill, process))
            with anyio.move_on_after(chance.expovariate(1 / of.stops) if of.stops else None):
                await process.until_ended()
            if not process.ended:
                self.counts["stops"] += 1
                process.terminate()
                with anyio.move_on_after(chance.choice([100, 0.5, 3])):
                    await process.until_ended()
                if not process.ended:
                    self.counts["forced stops"] += 1
                    process.force()
                await process.until_ended()
            self._check()
            await anyio.sleep(chance.choice([0, 0, 1, 10]))

    def _start(self, tasks: anyio.abc.TaskGroup, member: str) -> Process:
        number = len(self.processes) + 1
        structlog.get_logger().debug("simulation.started", process=number, member=member)
        token = PROCESS.set(number)
        process = Process(self.world, member, number)
        tasks.start_soon(process.run, name=f"process {number}")
        PROCESS.reset(token)
        self.processes.append(process)
        self._unchecked.append(process)
        return process

    def _kill(self, process: Process) -> None:
        self._loop.thaw(process.number)
        process.kill()

    async def _sleeps(self) -> None:
        chance = self._random_of("sleeps")
        for at, seconds in self.of.sleeps:
            await until(self._began + at)
            if self.running:
                process = chance.choice(self.running)
                self.counts["sleeps"] += 1
                self._reasons.note("a process that slept")
                structlog.get_logger().debug("simulation.sleeps", process=process.number)
                self._loop.freeze(PROCESS, process.number)
                try:
                    await anyio.sleep(seconds)
                finally:
                    self._loop.thaw(process.number)

    # --- the server and the operator ------------------------------------------------------------

    async def _elections(self) -> None:
        for at, silent in self.of.elections:
            await until(self._began + at)
            self.world.server.elect(silent)

    async def _cuts(self) -> None:
        server = self.world.server
        for at, kept in self.of.cuts:
            await until(self._began + at)
            server.set_time()
            server.forget(Timestamp(self._oplog.now.time - int(kept), 1))

    async def _upgrade(self) -> None:
        if self.of.upgrade is not None:
            await until(self._began + self.of.upgrade)
            self.world.server.upgrade()

    async def _restore(self, backed_up: float, restored: float) -> None:
        await until(self._began + backed_up)
        if comparing := [each for each in self.world.destinations if each.compares]:
            restore = self._random_of(f"restores {restored}").choice(comparing).back_up()
            await until(self._began + restored)
            restore()

    async def _orders(self) -> None:
        orders = [*self.of.orders, *((at, "reload", "") for at in self.of.reloads)]
        for at, what, handler in sorted(orders):
            await until(self._began + at)
            if what == "reload":
                self.operator.reload()
            else:
                await self.operator.order(what, handler)

    async def _crashes(self) -> None:
        for at in self.of.crashes:
            await until(self._began + at)
            for each in self.running:
                self._kill(each)

    # --- the end --------------------------------------------------------------------------------

    async def _heal(self, tasks: anyio.abc.TaskGroup, members: Sequence[str]) -> None:
        """From now on nothing fails."""
        world = self.world
        for faults in world.faults:
            faults.heal()
        world.server.silent_until, world.server.most_streams = 0.0, 1000
        self._loop.interrupts.clear()
        await self.operator.resume()
        await self._revive(tasks, members)
        self.writer.touch()  # a destination that was restored is noticed at the next change
        self._check()
        await anyio.sleep(2)  # a process that has just woken up hears that it has lost its leases
        with anyio.move_on_after(PATIENCE_SECONDS):
            while not self._is_settled:
                self._check()
                await self._revive(tasks, members)
                await self.operator.repair()
                await anyio.sleep(1)

    async def _revive(self, tasks: anyio.abc.TaskGroup, members: Sequence[str]) -> None:
        """Starts a process for each member whose last one has ended, or is ending."""
        for member in members:
            last = [each for each in self.processes if each.member == member][-1:]
            if not last or not last[0].goes_on:
                for each in last:
                    await each.until_ended()
                self._start(tasks, member)

    async def _handled(self, tasks: anyio.abc.TaskGroup, members: Sequence[str]) -> None:
        """Everything is handled in time."""
        deadline = anyio.current_time() + PATIENCE_SECONDS
        while (missing := self._missing()) or not self._is_settled:
            self._check()
            if anyio.current_time() > deadline:
                states = [
                    f"{scope.name} in {each.number} is {each.explanation(scope.name)}"
                    for scope in self.world.scopes
                    for each in self.running
                ]
                raise Violation(
                    f"{'; '.join(states)} after {PATIENCE_SECONDS:g} s without faults; "
                    f"{missing or 'everything is handled'}"
                )
            await self._revive(tasks, members)  # it ends with the last scope that has ended
            await self.operator.repair()  # a cut may be noticed late
            await anyio.sleep(1)
        self._check()

    @property
    def _is_settled(self) -> bool:
        """Whether the last orders have their effect, each scope is followed by one process, and
        says that it has caught up, with all handlers on one stream."""
        for scope in self.world.scopes:
            followers = [each for each in self.running if self.operator.follows(each, scope.name)]
            if len(followers) != 1:
                return False
            (process,) = followers
            watcher = process.supervisor.find(scope.name)
            if watcher is None or watcher.status.state is not WatcherState.CAUGHT_UP:
                return False
            states = dict(process.states(scope.name))
            names = {each.name for each in scope.destinations}
            if states.keys() != names or set(states.values()) != {"attached"}:
                return False
            generations = watcher.generations
            if generations["generation"] != generations["observed_generation"]:
                return False
            if any(watcher.replays.is_wanted(name) for name in names):
                return False
            snapshot = watcher.status.handled_snapshot
            if snapshot is not None and not snapshot.progress.over:
                return False
        return True

    def _missing(self) -> str:
        found = [
            f"{scope.name}: {each.name} lacks {each.ledger.describe(missing)}"
            for scope in self.world.scopes
            for each in scope.destinations
            if (missing := each.ledger.missing())
        ]
        return "; ".join(found)

    async def _stopped(self) -> None:
        """A clean stop ends in time, and everything is saved."""
        processes = self.running
        for process in processes:
            process.terminate()
        for process in processes:
            with anyio.move_on_after(2 * PATIENCE_SECONDS):
                await process.until_ended()
            if not process.ended:
                raise Violation(f"the stop of process {process.number} has not ended")
            if unsaved := process.supervisor.unsaved:
                raise Violation(f"a stop without faults has not saved: {unsaved}")
            if held := process.runtime.budget.used:
                raise Violation(f"{held} bytes count as in flight after a stop")
        self._check()

    def _check(self) -> None:
        """Raises the first violation."""
        for destination in self.world.destinations:
            if destination.violations:
                raise destination.violations[0]
        for process in self._unchecked:
            if process.failure is not None:
                raise process.failure
            if process.has_ended_itself and (left := process.not_at_an_invalidate):
                raise Violation(f"a scope has ended before these handlers came so far: {left}")
            if process.gate.is_open and (halted := next(self.operator.unlawful(process), "")):
                raise Violation(halted)
        self._unchecked = [each for each in self._unchecked if not each.ended]

    # --- what was covered -----------------------------------------------------------------------

    def covered(self, logs: Logs) -> Counter[str]:
        """What happened, with numbers."""
        world = self.world
        found = self.counts + self.operator.counts + logs.counts
        found["runs"] = 1
        found["scopes"] = len(world.scopes)
        found["processes"] = len(self.processes)
        found["kills"] = sum(not each.gate.is_open for each in self.processes)
        found["changes"] = sum(len(each.expected.changes) for each in world.scopes)
        ledgers = [each.ledger for each in world.destinations]
        found["handled again"] = sum(each.repeated for each in ledgers)
        found["rows"] = sum(each.rows for each in ledgers)
        found["replays"] = sum(each.replays.done for each in ledgers)
        found["snapshots"] = sum(each.snapshots for each in ledgers)
        for reason, count in self._reasons.counts.items():
            found[f"reason to repeat: {reason}"] += count
        for faults in world.faults:
            for what, count in faults.counts.items():
                part, _, fault = what.partition(": ")
                found[f"{part.split()[0]}: {fault}"] += count
        for what, count in world.server.counts.items():
            found[f"server: {what}"] += count
        for destination in world.destinations:
            found[f"handler: {destination.shape.kind.value}"] += 1
        return found

    def digest(self, loop: VirtualLoop) -> str:
        """Of everything that the handlers got."""
        text = repr([each.ledger.applied for each in self.world.destinations])
        return hashlib.sha256(f"{text} {loop.steps} {loop.time()}".encode()).hexdigest()[:12]

    # --- what they share ------------------------------------------------------------------------

    def _faults(self, name: str, part: Part) -> Faults:
        outages = [(self._began + a, self._began + b, how) for a, b, how in part.outages]
        return Faults(name, self._random_of(name), part.rates, outages)

    def _random_of(self, name: str) -> random.Random:
        return random.Random(f"{name} {self.of.seed}")
