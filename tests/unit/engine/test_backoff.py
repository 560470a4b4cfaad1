"""How long a watcher waits before its next life."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.engine.backoff import Backoff, BackoffPolicy

seconds = st.floats(0.001, 1000)


@given(seconds, seconds, st.integers(1, 200))
def test_each_delay_is_half_to_whole_of_its_step_and_never_above_the_cap(
    first: float, cap: float, failures: int
) -> None:
    backoff = Backoff(BackoffPolicy(first, cap))
    for failure in range(failures):
        step = min(first * 2.0 ** min(failure, 60), cap)
        assert step / 2 <= backoff.next_delay() <= step <= cap


@given(seconds)
def test_below_the_cap_no_delay_is_shorter_than_the_one_before(first: float) -> None:
    backoff = Backoff(BackoffPolicy(first, first * 2**20))
    delays = [backoff.next_delay() for _ in range(20)]
    assert delays == sorted(delays)


def test_after_progress_the_first_delay_comes_again() -> None:
    backoff = Backoff(BackoffPolicy(1, 1000))
    for _ in range(8):
        backoff.next_delay()
    assert backoff.next_delay() > 100
    backoff.reset()
    assert backoff.next_delay() <= 1


def test_two_watchers_do_not_wait_equally_long() -> None:
    """Else those that fail together would come back together, again and again."""
    policy = BackoffPolicy(1, 1000)
    assert len({Backoff(policy).next_delay() for _ in range(10)}) > 1
