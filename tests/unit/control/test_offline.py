"""What the shell says of actions on a scope where no daemon runs."""

import pytest

from tailrace.control.actions.pause import PAUSE, RESUME, PauseBody
from tailrace.control.actions.positions import POSITIONS, PositionsQuery
from tailrace.control.actions.seek import SEEK, SeekBody
from tailrace.control.offline import OfflineControl
from tailrace.control.outcome import Done
from tailrace.control.server_positions import ServerPositions, moment
from tailrace.stores.memory import MemoryCheckpoints, MemoryDesiredStates
from tailrace.stream import ChangeStreamOptions
from tests.unit.control.controlling import NoTimes
from tests.unit.engine.changes import changes, time
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.watching import SCOPE

STORED = "no daemon runs here: stored; applies when a process follows the scope"


class Server(ServerPositions):
    """Positions of the scope, as a context."""

    async def __aenter__(self) -> ServerPositions:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


@pytest.fixture
def control() -> OfflineControl:
    driver = ScriptedDriver(*changes(1, 10))
    server = Server(SCOPE, ChangeStreamOptions(), driver, lambda: time(9), NoTimes())
    return OfflineControl(
        MemoryCheckpoints(), MemoryDesiredStates(), ["audit", "log"], lambda: server
    )


async def test_an_order_is_stored_and_the_same_order_twice_is_one(control: OfflineControl) -> None:
    assert PAUSE.offline is not None
    assert RESUME.offline is not None
    told = []
    for act in (PAUSE.offline, PAUSE.offline, RESUME.offline, RESUME.offline):
        done = await act(control, "orders", PauseBody(), "ann")
        assert isinstance(done, Done)
        assert done.details == {"state": None}
        told.append(done.message)
    assert told == [
        f"scope 'orders' is paused: {STORED}",
        "scope 'orders' is paused already",
        f"scope 'orders' is resumed: {STORED}",
        "scope 'orders' was not paused",
    ]
    done = await PAUSE.offline(control, "orders", PauseBody(handler="log"), "ann")
    assert isinstance(done, Done)
    assert done.message == f"handler 'log' of scope 'orders' is paused: {STORED}"


async def test_a_seek_says_what_it_means_and_is_stored(control: OfflineControl) -> None:
    assert SEEK.offline is not None
    body = SeekBody(at=moment(time(4)))
    effect = f"there is no position yet: it continues at {moment(time(4))}"
    tried = await SEEK.offline(control, "orders", body.model_copy(update={"dry_run": True}), "ann")
    assert isinstance(tried, Done)
    assert tried.message == f"scope 'orders': {effect}. Dry run: nothing was changed"
    assert await control.desired_states.load("orders") is None
    done = await SEEK.offline(control, "orders", body, "ann")
    assert isinstance(done, Done)
    assert done.message == f"scope 'orders': {effect}. No{STORED[2:]}"
    order = await control.desired_states.load("orders")
    assert order is not None
    assert order.seek is not None


async def test_the_positions_are_those_of_the_store(control: OfflineControl) -> None:
    assert POSITIONS.offline is not None
    answer = await POSITIONS.offline(control, "orders", PositionsQuery(), "ann")
    assert isinstance(answer, dict)
    assert POSITIONS.text(answer) == "No positions of scope 'orders' are kept.\n"
