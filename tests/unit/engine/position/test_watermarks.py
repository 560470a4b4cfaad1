"""The watermarks of all handlers of a run: what they have together, and what they hold."""

from collections.abc import Callable
from itertools import permutations

import pytest
from bson.timestamp import Timestamp

from tailrace.engine.position.place import Hold, Place
from tailrace.engine.position.watermark import Watermark
from tailrace.engine.position.watermarks import Watermarks
from tailrace.event import RawBatch
from tailrace.model import Position, PositionKind
from tests.unit.engine.changes import NOTHING, OPAQUE, batch, change, changes, time, token

START = Position(PositionKind.EVENT, token(0), token(0), time(0))
NAMES = ("audit", "lake", "table")


class Run:
    """Watermarks of three handlers, each fed with all replies."""

    def __init__(self, start: Position = START) -> None:
        self.freed: list[int] = []
        self.all = Watermarks(start.cluster_time, self.freed.append)
        for name in NAMES:
            self.all.each[name] = Watermark(start, self.all.moved)

    def reply(self, whole: RawBatch) -> dict[str, list[Place]]:
        """The places of a reply, by handler."""
        self.all.read(whole)
        time, slices = self.all.admitted(whole), list(whole.slices(2))
        holds = self.all.holds(slices, len(NAMES))
        return {
            name: each.admit(slices, whole.token, time, holds=holds)
            for name, each in self.all.each.items()
        }


def test_the_bytes_of_a_slice_are_counted_once_until_every_handler_has_let_it_go() -> None:
    run, whole = Run(), batch(changes(1, 5))
    places = run.reply(whole)
    assert run.all.size == whole.size
    run.all.each["audit"].finish(*places["audit"])
    run.all.each["lake"].finish(places["lake"][0])
    run.all.each["table"].take(places["table"][0])
    assert (run.all.size, sum(run.freed)) == (whole.size // 2, whole.size // 2)
    run.all.each["table"].hold(30)  # what it keeps of it is its own
    assert run.all.size == whole.size // 2 + 30
    for each in run.all.each.values():
        each.abandon()
    assert (run.all.size, sum(run.freed)) == (0, whole.size)


def test_the_run_is_where_the_last_handler_is() -> None:
    run = Run()
    places = run.reply(batch(changes(1, 7), token(9)))
    assert (run.all.events, run.all.empty) == (6, False)
    run.all.each["audit"].finish(*places["audit"])
    run.all.each["lake"].finish(*places["lake"][:2])
    assert (run.all.position, run.all.handled_time) == (START, time(0))
    run.all.each["table"].finish(places["table"][0])
    assert run.all.position.event_token == token(2)
    assert run.all.events == 4
    run.all.each["table"].finish(*places["table"][1:])
    run.all.each["lake"].finish(places["lake"][2])
    assert (run.all.position.high_water, run.all.handled_time) == (token(9), time(9))
    assert (run.all.events, run.all.empty, run.all.size) == (0, True, 0)
    assert run.all.last_change == time(6)


def test_what_is_read_is_ahead_of_what_has_its_places() -> None:
    run = Run()
    run.all.read(batch([change(1)], token(3)))
    assert (run.all.read_time, run.all.read_token) == (time(3), None)
    run.reply(batch([change(1)], token(3)))
    assert (run.all.read_token, run.all.handled_time) == (token(3), time(0))


def test_a_handler_whose_time_is_not_known_leaves_that_of_the_run_unknown() -> None:
    run = Run()
    run.all.each["late"] = Watermark(NOTHING)
    assert run.all.handled_time is None
    assert run.all.position == NOTHING


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (batch([change(3)], token(5)), time(5)),
        (batch([change(3)], OPAQUE[5]), time(3)),
        (batch([], OPAQUE[5], time(9)), None),  # the reply that opens a stream never has events
    ],
    ids=["token", "event", "first empty reply"],
)
def test_a_reply_tells_up_to_when_the_stream_is_read(
    reply: RawBatch, expected: Timestamp | None
) -> None:
    assert Run().all.time_after(reply) == expected


def test_an_empty_reply_after_the_first_one_tells_the_time_of_the_server() -> None:
    run, empty = Run(), batch([], OPAQUE[5], time(9))
    run.reply(empty)
    assert run.all.time_after(empty) == time(9)
    assert Watermarks(None, lambda freed: None).time_after(empty) == time(9)


def test_without_handlers_nothing_is_held() -> None:
    freed: list[int] = []
    watermarks = Watermarks(time(0), freed.append)
    watermark = watermarks.each[""] = Watermark(START, watermarks.moved, handles=False)
    whole = batch(changes(1, 4))
    slices = list(whole.slices())
    holds = watermarks.holds(slices, 0)
    assert watermark.admit(slices, whole.token, time(3), holds=holds) == []
    assert (watermarks.size, watermark.size, sum(freed)) == (0, 0, 0)
    assert watermarks.position.event_token == token(3)


def test_a_slice_counts_until_the_last_of_several_handlers_lets_it_go() -> None:
    """Each by finishing it, by taking it in, by leaving, or at the end of the run."""
    ends: list[Callable[[Watermark, Place], None]] = [
        lambda one, place: one.finish(place),
        lambda one, place: one.take(place),
        lambda one, place: one.drop_after(place.number - 1),
        lambda one, place: one.abandon(),
    ]
    for order in permutations(ends):
        freed: list[int] = []
        whole = batch([change(1)])
        (shared,) = slices = list(whole.slices())
        holds = [Hold(shared.size, len(order))]
        for number, end in enumerate(order, 1):
            watermark = Watermark(START, freed.append)
            (place,) = watermark.admit(slices, whole.token, time(1), holds=holds)
            assert watermark.size == shared.size
            end(watermark, place)
            assert watermark.size == 0
            assert sum(freed) == (shared.size if number == len(order) else 0)
            watermark.abandon()  # nothing is given back twice
            assert sum(freed) == (shared.size if number == len(order) else 0)
