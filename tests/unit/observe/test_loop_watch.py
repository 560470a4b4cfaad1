"""Who blocks the event loop, and how it is reported, by a clock that only blocks advance."""

import time
from collections.abc import Callable, Iterator

import anyio
import pytest
import structlog
from structlog.testing import LogCapture

from tailrace.engine import blocking_handler
from tailrace.engine.handle.delivery import Delivery, Handled
from tailrace.event import ChangeEvent
from tailrace.model.failure_policy import FailurePolicy
from tailrace.observe import loop_watch
from tailrace.observe.loop_watch import LoopWatch
from tests.guards import HANGS_SECONDS
from tests.handlers import handler
from tests.unit.engine.changes import change, delivery_to, until

EVENT = ChangeEvent.from_document(change(1))
BLOCKED, RELEASED = "event_loop.blocked", "event_loop.released"


def poll(condition: Callable[[], bool]) -> None:
    """Blocks until the thread that watches has done something."""
    for _ in range(HANGS_SECONDS * 1000):
        if condition():
            return
        time.sleep(0.001)
    raise AssertionError("the thread does not watch")


class Log(LogCapture):
    def __init__(self, clock: "Clock") -> None:
        super().__init__()
        self.clock = clock

    def named(self, event: str) -> list[dict[str, object]]:
        return [dict(entry) for entry in self.entries if entry["event"] == event]

    def block_until_told(self, count: int = 1) -> None:
        """Blocks the loop until so many blocks are in the log, and the thread looked again."""
        self.clock.now += 1
        poll(lambda: len(self.named(BLOCKED)) >= count)
        looks = self.clock.looks
        poll(lambda: self.clock.looks > looks + 5)


class Clock:
    """A clock that only blocks advance."""

    now = 1000.0
    looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return self.now


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    monkeypatch.setattr(loop_watch, "HEARTBEAT_SECONDS", 0.001)
    monkeypatch.setattr(loop_watch, "BLOCKED_SECONDS", 0.05)
    clock = Clock()
    monkeypatch.setattr(loop_watch, "time", clock)
    capture, before = Log(clock), structlog.get_config()
    structlog.configure(processors=[capture])
    yield capture
    structlog.configure(**before)


@pytest.fixture
def watch(log: Log) -> LoopWatch:
    return LoopWatch(lambda lag: None, blocking_handler)


def delivery(timeout_seconds: float | None = None, **kinds: Callable[..., object]) -> Delivery:
    policy = FailurePolicy(timeout_seconds=timeout_seconds)
    return delivery_to(handler("mine", failure=policy, **kinds))  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout_seconds", [None, 60.0])
async def test_a_handler_of_single_events_is_named_with_its_scope_and_line(
    log: Log, watch: LoopWatch, timeout_seconds: float | None
) -> None:
    def synchronous_client() -> None:
        log.block_until_told()

    async def on_order(event: ChangeEvent) -> None:
        await anyio.lowlevel.checkpoint()
        synchronous_client()

    with watch.watching():
        await delivery(timeout_seconds, on_event=on_order).deliver_all([EVENT], Handled())
        await until(lambda: bool(log.named(RELEASED)))
    (blocked,) = log.named(BLOCKED)
    assert (blocked["scope"], blocked["handler"]) == ("orders", "mine")
    assert str(blocked["at"]).startswith(f"{__file__}:")
    assert str(blocked["at"]).endswith(".on_order")
    assert blocked["inside"] != blocked["at"], "the innermost call"
    assert isinstance(blocked["seconds"], float)
    assert blocked["seconds"] >= 0.05
    assert blocked["log_level"] == "warning"


async def test_code_outside_handlers_is_reported_by_its_place_alone(
    log: Log, watch: LoopWatch
) -> None:
    with watch.watching():
        log.block_until_told()
    (blocked,) = log.named(BLOCKED)
    assert "handler" not in blocked
    assert str(blocked["at"]).startswith(f"{__file__}:") or "structlog" in str(blocked["at"])


async def test_each_block_and_its_end_are_reported_once(log: Log, watch: LoopWatch) -> None:
    with watch.watching():
        for number in (1, 2):
            log.block_until_told(number)
            await until(lambda: len(log.named(RELEASED)) == number)  # noqa: B023 - awaited here
            assert len(log.named(BLOCKED)) == number


async def test_the_lag_of_each_heartbeat_is_observed(log: Log) -> None:
    lags: list[float] = []
    with LoopWatch(lags.append, blocking_handler).watching():
        await until(lambda: len(lags) >= 3)
        beats = len(lags)
        log.block_until_told()
        await until(lambda: len(lags) > beats)
    assert max(lags) >= 0.05
    assert min(lags) >= 0
    beats, later = len(lags), list[float]()
    with LoopWatch(later.append, blocking_handler).watching():
        await until(lambda: len(later) >= 3)
    assert len(lags) == beats, "a heartbeat that nobody watches any more"
