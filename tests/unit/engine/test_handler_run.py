"""One handler's part in a run: what is saved of it, and how it goes over into another run."""

from dataclasses import replace

import pytest

from tailrace.engine import shared_stream
from tailrace.engine.handler_run import HandlerRun
from tailrace.engine.position.watermark import Watermark
from tailrace.model import Position, PositionKind, Progress, ResumeToken
from tailrace.model.subscription import Subscription
from tests.unit.engine import scripted_driver
from tests.unit.engine.changes import EPOCH, admit, batch, change, changes, time, token, until
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.watching import Destination, Watching

START = Position(PositionKind.EVENT, token(3), token(3), time(3))


def part(start: Position = START, at: int | None = None, *, joining: bool = False) -> HandlerRun:
    """A handler's part in a run; ``at``: it is to be attached at the token of this event."""
    has = Progress(token(at), time(at)) if at is not None else None
    watermark = Watermark(start, floor=has)
    return HandlerRun("audit", watermark, Subscription(start), start, joining=joining)


def handled(run: HandlerRun, *numbers: int) -> None:
    for n in numbers:
        run.watermark.finish(*admit(run.watermark, batch([change(n)])))


def test_a_start_position_is_none_to_save_until_something_has_confirmed_it() -> None:
    run = part()
    assert run.latest(first=False) is None
    assert run.latest(first=True) == START
    assert not run.is_confirmed(run.final())
    handled(run, 4)
    latest = run.latest(first=False)
    assert latest is not None
    assert latest.event_token == token(4)
    assert run.is_confirmed(run.final())


def test_a_handler_that_joins_goes_on_where_its_own_stream_has_ended() -> None:
    own, joining = part(), part(at=7, joining=True)
    handled(own, 4, 5)
    admit(own.watermark, batch([], token(7)))
    own.stored = own.watermark.position
    joining.join(own)
    assert not joining.joining
    assert joining.begun.is_set()
    assert joining.watermark.position == own.watermark.position
    assert joining.stored == own.stored
    assert not joining.is_confirmed(joining.watermark.position), "that is saved already"


@pytest.mark.parametrize(
    ("invalidated", "kind"), [(False, PositionKind.IDLE), (True, PositionKind.INVALIDATE)]
)
def test_what_the_shared_stream_has_read_since_counts_for_a_handler_that_joins(
    invalidated: bool, kind: PositionKind
) -> None:
    """After an invalidate only ``startAfter`` can continue."""
    own, joining = part(), part(at=7, joining=True)
    admit(joining.watermark, batch([], token(9)), invalidated=invalidated)
    handled(own, 4, 5)
    admit(own.watermark, batch([], token(7)))
    joining.join(own)
    position = joining.watermark.position
    assert (position.kind, position.event_token, position.high_water) == (
        kind,
        token(5),
        token(9),
    )


def test_changes_that_wait_for_a_handler_that_joins_are_after_its_position() -> None:
    own, joining = part(), part(at=7, joining=True)
    for n in (6, 8):  # the shared stream was not as far as the handler's own
        (place,) = admit(joining.watermark, batch([change(n)]))
    handled(own, 4, 5, 6, 7)
    joining.join(own)
    assert joining.watermark.position.event_token == token(7)
    joining.watermark.finish(*list(joining.watermark.places))
    assert place.finished
    assert joining.watermark.position.event_token == token(8)


def test_a_handler_that_leaves_keeps_its_position() -> None:
    run = part()
    handled(run, 4)
    admit(run.watermark, batch([change(5)]))
    run.leave()
    assert (run.left, run.over.is_set(), run.begun.is_set()) == (True, True, True)
    assert run.final() == replace(run.watermark.position, handled=frozenset())
    assert run.final().event_token == token(4)


def opaque(n: int, more: str = "2B") -> ResumeToken:
    """A token from which no time can be read, and which cannot be compared."""
    return ResumeToken.of({"_data": f"x{EPOCH + n:08X}{more}"})


async def test_a_handler_comes_back_at_a_token_that_cannot_be_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both streams stand at the same one: nothing of the shared one has to be removed."""
    monkeypatch.setattr(shared_stream, "_FIRST_SECONDS", 0.0)
    monkeypatch.setattr(scripted_driver, "token", opaque)
    oplog = [change(n, _id=opaque(n).document) for n in range(1, 400)]
    quick, slow = Destination("quick"), Destination("slow")
    slow.held = {1}
    driver = ScriptedDriver(*oplog[:200], batch_size=1)
    budget = 40 * 5 * len(changes(1, 2)[0])
    watching = Watching(driver, quick.routed(), slow.routed(concurrency=1), budget=budget)
    async with watching.run():
        await until(lambda: len(quick.handled) == 200)
        assert "slow" in watching.watcher.apart
        slow.held = set()
        await until(lambda: len(slow.handled) == 200 and not watching.watcher.apart)
        driver.oplog += oplog[200:300]
        await until(lambda: len(quick.handled) == len(slow.handled) == 300)
    assert quick.handled == slow.handled == list(range(1, 301))
