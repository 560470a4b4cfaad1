"""One run of the simulation: changes, processes and an operator, beside all the faults."""

from __future__ import annotations

import hashlib
import random
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import anyio
import structlog
from bson.timestamp import Timestamp
from structlog.testing import capture_logs

from tailrace.engine import WatcherState
from tailrace.model import Position, PositionKind
from tailrace.model.order import Order
from tailrace.testing.oplog import Oplog
from tests.simulation.destinations import Destination
from tests.simulation.determinism import deterministic
from tests.simulation.event_loop import Stuck, VirtualLoop
from tests.simulation.faults import Faults
from tests.simulation.ledger import Expected, Reasons, Violation
from tests.simulation.process import Process, World
from tests.simulation.scenario import Part, Scenario, scenario
from tests.simulation.source import Server
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
    with deterministic(of.seed, loop.time), capture_logs() as logs:
        try:
            simulation = Simulation(of, loop)
            loop.run(simulation.run())
        except Exception as error:  # noqa: BLE001 - reported, whatever it is
            result.failure = _described(error)
    result.logs = logs
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

    def __init__(self, of: Scenario, loop: VirtualLoop) -> None:
        self.of = of
        self._loop = loop
        self._random = random.Random(f"simulation {of.seed}")
        self._began = loop.time()
        oplog = Oplog()
        expected = Expected(oplog, of.service.plan.scope)
        reasons = Reasons()
        server = Server(
            oplog,
            self._faults("server", of.server),
            self._began,
            of.most_streams,
            of.refuses_late,
            reasons.note,
        )
        destinations = [
            Destination(
                f"{shape.kind}-{n}".replace(" ", "-"),
                shape,
                self._faults(f"destination {n}", part),
                expected,
                reasons,
            )
            for n, (shape, part) in enumerate(zip(of.shapes, of.destinations, strict=True))
        ]
        store = self._faults("store", of.store)
        self.world = World(server, store, destinations, expected, reasons)
        self.writer = Writer(oplog, server, self._random_of("writer"), of)
        self.process: Process | None = None
        self.processes = 0
        self.corpses: list[Process] = []
        self.counts: Counter[str] = Counter()
        self.healed = False

    async def run(self) -> None:
        """The changes and faults, then a time without faults, in which everything must be handled,
        then a clean stop, and a further process."""
        async with anyio.create_task_group() as tasks:
            with anyio.move_on_after(self.of.seconds):
                async with anyio.create_task_group() as trouble:
                    trouble.start_soon(self.writer.run)
                    trouble.start_soon(self._processes, tasks)
                    trouble.start_soon(self._operator)
                    trouble.start_soon(self._elections)
                    trouble.start_soon(self._cuts)
                    trouble.start_soon(anyio.sleep_forever)
            await self._heal(tasks)
            await self._handled()
            await self._stopped()
            self._start(tasks)
            self.writer.write(5)
            await self._handled()
            await self._stopped()
            tasks.cancel_scope.cancel()

    # --- processes ------------------------------------------------------------------------------

    async def _processes(self, tasks: anyio.abc.TaskGroup) -> None:
        """One after another, each with its own end."""
        of, chance = self.of, self._random_of("processes")
        while True:
            process = self._start(tasks)
            if of.kills and chance.random() < 0.7:
                steps = int(chance.expovariate(1 / of.kills)) + 1
                self._loop.interrupt(self._loop.steps + steps, process.kill)
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

    def _start(self, tasks: anyio.abc.TaskGroup) -> Process:
        self.processes += 1
        structlog.get_logger().debug("simulation.started", process=self.processes)
        self.process = Process(self.of.service, self.world)
        self.corpses.append(self.process)
        tasks.start_soon(self.process.run, name=f"process {self.processes}")
        return self.process

    async def _elections(self) -> None:
        for at, silent in sorted(self.of.elections):
            await anyio.sleep(self._began + at - anyio.current_time())
            self.world.server.elect(silent)

    async def _cuts(self) -> None:
        server = self.world.server
        for at, kept in sorted(self.of.cuts):
            await anyio.sleep(self._began + at - anyio.current_time())
            server.set_time()
            server.forget(Timestamp(server.oplog.now.time - int(kept), 1))

    # --- the operator ---------------------------------------------------------------------------

    async def _operator(self) -> None:
        for at, what in self.of.orders:
            await anyio.sleep(self._began + at - anyio.current_time())
            await self._order(what)

    async def _order(self, what: str, to: Timestamp | None = None) -> None:
        """Stores an order; the process hears of it within a second."""
        orders, chance = self.world.orders, self._random_of(f"orders {self._loop.steps}")
        last = await orders.load("orders")
        now = datetime.fromtimestamp(anyio.current_time(), UTC)
        number = last.number + 1 if last is not None else 1
        order = last or Order("orders", number, False, "ann", now)
        order = replace(order, number=number, at=now)
        changes = self.world.expected.changes
        state = self.process.state.value if self.process is not None else "none"
        if what == "seek":
            if not changes and to is None:
                return
            time = max(
                to or self.world.expected.time(chance.choice(changes)), self.world.server.first
            )
            order = replace(
                order, seek=Position(PositionKind.IDLE, None, None, time), sought=number
            )
        else:
            order = replace(order, paused=what == "pause")
        self.counts[f"order {what} in state {state}"] += 1
        await orders.give(order)
        log = structlog.get_logger()
        log.debug("simulation.ordered", order=what, number=number, at=str(order.seek), state=state)

    # --- the end --------------------------------------------------------------------------------

    async def _heal(self, tasks: anyio.abc.TaskGroup) -> None:
        """From now on nothing fails."""
        world = self.world
        self.healed = True
        for faults in self._all_faults:
            faults.heal()
        world.server.silent_until, world.server.most_streams = 0.0, 1000
        self._loop.interrupts.clear()
        await self._order("resume")
        if self.process is None or not self.process.goes_on:
            if self.process is not None:
                await self.process.until_ended()
            self._check()
            self._start(tasks)
        await self._repair()

    async def _repair(self) -> None:
        """If a handler has lost its history, lets the scope go on where the oplog begins."""
        process, server = self.process, self.world.server
        assert process is not None
        with anyio.move_on_after(PATIENCE_SECONDS):
            while not await self._is_settled(process):
                if "halted" in process.handler_states and self._has_lost_history:
                    self.counts["repairs of a lost history"] += 1
                    await self._order("seek", server.first)
                    if refused := process.supervisor.restart("orders"):
                        raise Violation(f"the scope cannot be restarted: {refused}")
                await anyio.sleep(1)

    @property
    def _has_lost_history(self) -> bool:
        return self.world.server.counts["positions without history"] > 0

    async def _handled(self) -> None:
        """Everything is handled in time."""
        deadline = anyio.current_time() + PATIENCE_SECONDS
        process = self.process
        assert process is not None
        while (missing := self._missing()) or not await self._is_settled(process):
            self._check()
            if process.ended or anyio.current_time() > deadline:
                raise Violation(
                    f"the scope is {process.explanation} after {PATIENCE_SECONDS:g} s without "
                    f"faults; {missing or 'everything is handled'}"
                )
            await anyio.sleep(1)
        self._check()

    async def _is_settled(self, process: Process) -> bool:
        """Whether the last order has its effect, and the scope says that it has caught up."""
        order = await self.world.orders.load("orders")
        obeyed = process.supervisor.status()["orders"]["observed_generation"]
        known = order is None or obeyed == order.number
        together = set(process.handler_states) == {"attached"}
        return known and together and process.state is WatcherState.CAUGHT_UP

    def _missing(self) -> str:
        found = [
            f"{each.name} lacks {each.ledger.describe(missing)}"
            for each in self.world.destinations
            if (missing := each.ledger.missing())
        ]
        return "; ".join(found)

    async def _stopped(self) -> None:
        """A clean stop ends in time, and everything is saved."""
        process = self.process
        assert process is not None
        process.terminate()
        with anyio.move_on_after(2 * PATIENCE_SECONDS):
            await process.until_ended()
        if not process.ended:
            raise Violation(f"a stop has not ended: the scope is {process.explanation}")
        if unsaved := process.supervisor.unsaved:
            raise Violation(f"a stop without faults has not saved: {unsaved}")
        self._check()

    def _check(self) -> None:
        """Raises the first violation."""
        for destination in self.world.destinations:
            if destination.violations:
                raise destination.violations[0]
        for process in self.corpses:
            if process.failure is not None:
                raise Violation(f"a process ended by itself: {process.failure!r}")
        process = self.process
        halted = process is not None and process.state is WatcherState.HALTED
        lawful = self._has_lost_history and not self.of.service.plan.skip_lost_history
        if process is not None and halted and process.gate.is_open and not lawful:
            raise Violation(f"the scope is {process.explanation}")

    # --- what they share ------------------------------------------------------------------------

    def covered(self, logs: Sequence[Any]) -> Counter[str]:
        """What happened, with numbers."""
        world = self.world
        found = Counter(self.counts)
        found["runs"] = 1
        found["processes"] = self.processes
        found["kills"] = sum(not each.gate.is_open for each in self.corpses)
        found["changes"] = len(world.expected.changes)
        found["handled again"] = sum(each.ledger.repeated for each in world.destinations)
        for reason, count in world.reasons.counts.items():
            found[f"reason to repeat: {reason}"] += count
        for faults in self._all_faults:
            for what, count in faults.counts.items():
                part, _, fault = what.partition(": ")
                found[f"{part.split()[0]}: {fault}"] += count
        for what, count in world.server.counts.items():
            found[f"server: {what}"] += count
        for shape in self.of.shapes:
            found[f"handler: {shape.kind.value}"] += 1
        for log in logs:
            name = log["event"]
            found[f"log: {name}" + (f" {log['state']}" if name == "watcher.entered" else "")] += 1
        return found

    def digest(self, loop: VirtualLoop) -> str:
        """Of everything that the handlers got."""
        text = repr([each.ledger.applied for each in self.world.destinations])
        return hashlib.sha256(f"{text} {loop.steps} {loop.time()}".encode()).hexdigest()[:12]

    @property
    def _all_faults(self) -> list[Faults]:
        world = self.world
        of_destinations = [each.faults for each in world.destinations]
        return [world.server.faults, world.store_faults, *of_destinations]

    def _faults(self, name: str, part: Part) -> Faults:
        outages = [(self._began + a, self._began + b, how) for a, b, how in part.outages]
        return Faults(name, self._random_of(name), part.rates, outages)

    def _random_of(self, name: str) -> random.Random:
        return random.Random(f"{name} {self.of.seed}")
