"""How many documents are read per second."""

import anyio
import pytest

from tailrace.snapshot.rates import Rates


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    times = [1000.0]
    monkeypatch.setattr(anyio, "current_time", lambda: times[0])
    return times


def test_the_rate_is_that_of_the_last_half_minute(clock: list[float]) -> None:
    rates = Rates()
    assert rates.now() == {}
    for _ in range(600):
        begun = clock[0]
        clock[0] += 0.1
        rates.note("a", 10, begun)
        rates.note("b", 1, begun)
    assert rates.now() == {"a": pytest.approx(100), "b": pytest.approx(10)}
    for _ in range(100):
        begun = clock[0]
        clock[0] += 0.5
        rates.note("a", 10, begun)
    assert rates.now()["a"] == pytest.approx(20, rel=0.1)
    assert rates.now()["b"] == 0


def test_the_rate_of_a_stalled_copy_falls(clock: list[float]) -> None:
    rates = Rates()
    clock[0] += 1
    rates.note("a", 100, 1000.0)
    assert rates.now() == {"a": 100}
    clock[0] += 9
    assert rates.now() == {"a": 10}
    rates.clear()
    assert rates.now() == {}
