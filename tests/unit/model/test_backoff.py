"""How long to wait before the next attempt."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.failure_policy import Backoff

seconds = st.floats(0.001, 1000)


@given(seconds, seconds, st.integers(1, 200))
def test_each_delay_is_half_to_whole_of_its_step_and_never_above_the_cap(
    first: float, cap: float, failures: int
) -> None:
    step = min(first * 2.0 ** min(failures - 1, 60), cap)
    assert step / 2 <= Backoff(first, cap).delay(failures) <= step <= cap


def test_two_watchers_do_not_wait_equally_long() -> None:
    """Otherwise watchers that fail together would retry together, again and again."""
    assert len({Backoff(1, 1000).delay(9) for _ in range(10)}) > 1
