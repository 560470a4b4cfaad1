"""A position that cannot be read stops its handler only, until an operator chooses another."""

from dataclasses import replace

import pytest

from tailrace.engine import WatcherState
from tailrace.model.desired_state import DesiredHandler
from tailrace.stores.memory import MemoryDesiredStates
from tests.unit.engine.changes import changes, checkpoint, time, until
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.test_desired_states import desired
from tests.unit.engine.watching import Destination, Watching

DAMAGED = {"lake": {"kind": "odd", "cluster_time": [1]}}


class Scope:
    """A scope whose handler ``audit`` is after event 2, and whose ``lake`` is unreadable."""

    def __init__(self, **fields: object) -> None:
        self.audit, self.lake = Destination("audit"), Destination("lake")
        known = {"cluster": "rs0/5f3a", "fingerprint": "", "handlers": ("audit",)}
        self.store = ScriptedStore(checkpoint(2, damaged=DAMAGED, **known | fields))
        self.states = MemoryDesiredStates()
        self.driver = ScriptedDriver(*changes(1, 6))

    def process(self) -> Watching:
        return Watching(
            self.driver,
            self.audit.routed(),
            self.lake.routed(),
            store=self.store,
            states=self.states,
            checkpoint_seconds=0,
        )

    async def run(self) -> Watching:
        """A process, until the other handler is done and this one is halted."""
        async with self.process().run() as watching:
            await until(lambda: self.audit.handled == [3, 4, 5])
            await until(lambda: watching.watcher.apart["lake"].state is WatcherState.HALTED)
            await until(lambda: self.store.records["orders"].position.event_token is not None)
            (reason,) = [each.reason for each in watching.watcher.apart.values()]
        for part in ("'orders'", "'lake'", "tailrace scopes seek orders --handler lake --at TIME"):
            assert part in reason
        assert self.lake.handled == []
        return watching


async def test_the_other_handlers_go_on_and_what_is_stored_stays_as_it_is() -> None:
    scope = Scope()
    await scope.run()
    assert scope.store.records["orders"].damaged == DAMAGED
    assert len(scope.store.saved) > 1


async def test_an_operator_chooses_another_position_for_the_one_handler() -> None:
    scope = Scope()
    await scope.run()
    wish = DesiredHandler(seek=desired(9, seek=4).seek, seek_generation=9)
    await scope.states.write(replace(desired(9), handlers={"lake": wish}))
    async with scope.process().run():
        await until(lambda: scope.lake.handled == [4, 5])
    assert scope.audit.handled == [3, 4, 5]
    record = scope.store.records["orders"]
    assert record.damaged == {}
    lake = record.of("lake")
    assert lake is not None
    assert lake.position.cluster_time == time(5)
    assert lake.observed_generation == 9


async def test_a_move_that_the_scope_has_made_before_is_no_choice() -> None:
    """Else the handler would begin at a position of long ago, or at none."""
    scope = Scope(observed_generation=3)
    await scope.states.write(desired(3, seek=1))
    await scope.run()


@pytest.mark.parametrize("known", [("audit",), ()], ids=["of one", "of everybody"])
async def test_the_only_handler_halts_the_scope_whoever_has_a_position(
    known: tuple[str, ...],
) -> None:
    scope = Scope(handlers=known)
    watching = Watching(scope.driver, scope.lake.routed(), store=scope.store)
    await watching.to_the_end()
    assert watching.watcher.status.state is WatcherState.HALTED
    assert "handler 'lake' cannot be read" in watching.reason
    assert scope.driver.starts == []


@pytest.mark.parametrize("then", ["nothing", "a seek of the other handler"])
async def test_a_choice_outlives_the_process_that_has_not_applied_it(then: str) -> None:
    """The handler is halted; the others make their moves at once, and those are saved."""
    scope = Scope()
    of_all = desired(9, seek=4)
    assert of_all.seek is not None
    async with scope.process().run() as watching:
        await until(lambda: scope.audit.handled == [3, 4, 5])
        await until(lambda: watching.watcher.apart["lake"].state is WatcherState.HALTED)
        claim = watching.watcher.claim
        if then == "nothing":
            await scope.states.write(of_all)
            watching.watcher.apply(of_all)
            await until(lambda: claim.observed_by("audit") == 9)
        else:
            for generation, name in ((9, "lake"), (10, "audit")):
                wish = DesiredHandler(seek=of_all.seek, seek_generation=generation)
                before = await scope.states.load("orders") or desired(8)
                handlers = {**before.handlers, name: wish}
                state = replace(before, generation=generation, handlers=handlers)
                await scope.states.write(state)
                watching.watcher.apply(state)
            await until(lambda: claim.observed_by("audit") == 10)
        await until(lambda: scope.audit.handled == [3, 4, 5, 4, 5])
    assert scope.lake.handled == []
    async with scope.process().run():
        await until(lambda: scope.lake.handled == [4, 5])
    assert scope.store.records["orders"].damaged == {}
    assert scope.audit.handled == [3, 4, 5, 4, 5]
