"""The server's time while it answers, and an estimate of it while it does not."""

from tailrace.stream import ServerClock
from tailrace.stream.server_clock import SILENCE_SECONDS
from tests.unit.engine.changes import time


class Elapsed:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def answered_at(seconds: int) -> tuple[ServerClock, Elapsed]:
    elapsed = Elapsed()
    clock = ServerClock(elapsed)
    clock.answered(time(seconds))
    return clock, elapsed


def test_nothing_is_known_before_the_first_answer() -> None:
    clock = ServerClock(Elapsed())
    assert (clock.now(), clock.up, clock.last_answer) == (None, None, None)


def test_while_the_server_answers_the_time_is_what_it_told_last() -> None:
    """An idle primary moves its time every 10 s: in between, nothing can be later than that."""
    clock, elapsed = answered_at(50)
    elapsed.seconds += SILENCE_SECONDS
    assert clock.up is True
    assert clock.now() == time(50)


def test_the_time_never_goes_back_when_another_member_answers() -> None:
    clock, _ = answered_at(50)
    clock.answered(time(40))
    assert clock.now() == time(50)


def test_while_the_server_is_unreachable_its_time_goes_on() -> None:
    clock, elapsed = answered_at(50)
    last = clock.last_answer
    for seconds in (SILENCE_SECONDS + 1, 600):
        elapsed.seconds = 1000 + seconds
        assert clock.up is False
        assert clock.now() == time(50 + int(seconds))
    assert clock.last_answer == last
