"""How large chunks are, and when the next one may be read."""

import anyio
import pytest

from tailrace.config import snapshots as settings
from tailrace.snapshot.pace import CHUNK_BYTES, ChunkPace


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The current time, and the durations of all sleeps."""
    times = [1000.0]

    async def sleep_until(until: float) -> None:
        times[0] = max(times[0], until)

    monkeypatch.setattr(anyio, "current_time", lambda: times[0])
    monkeypatch.setattr(anyio, "sleep_until", sleep_until)
    return times


async def test_chunks_grow_to_chunk_documents_and_not_beyond_their_bytes() -> None:
    small, large = ChunkPace(1000), ChunkPace(1000)
    sizes = []
    for _ in range(4):
        small.note(small.size(briefly=False), 100, 0.001)
        sizes.append(small.size(briefly=False))
    assert sizes == [400, 1000, 1000, 1000]
    large.note(100, 100 * 1024 * 1024, 0.1)
    assert large.size(briefly=False) == CHUNK_BYTES // (1024 * 1024)


async def test_beside_changes_chunks_are_small_and_followed_by_a_rest(clock: list[float]) -> None:
    pace = ChunkPace(1000)
    pace.note(100, 100, 0.001)
    assert pace.size(briefly=True) < pace.size(briefly=False)
    pace.note(100, 100, 0.002, briefly=True)

    await pace.wait()
    assert clock[0] > 1000.002


async def test_beside_changes_chunks_grow_to_a_brief_one() -> None:
    """Changes may come from the first chunk on."""
    pace, sizes = ChunkPace(1000), []
    for _ in range(3):
        sizes.append(pace.size(briefly=True))
        pace.note(sizes[-1], 100 * sizes[-1], 0.001, briefly=True)
    assert sizes == [100, 300, 300]


async def test_a_rest_beside_changes_has_a_longest_time(clock: list[float]) -> None:
    pace = ChunkPace(1000, longest_rest=1.0)
    pace.note(100, 100, 3.0, briefly=True)
    await pace.wait()
    assert clock[0] == pytest.approx(1001.0)


async def test_no_more_documents_are_read_than_documents_per_second(clock: list[float]) -> None:
    pace = ChunkPace(1000, per_second=100)
    for _ in range(10):
        await pace.wait()
        pace.note(50, 100, 0.0)
    await pace.wait()
    assert clock[0] == pytest.approx(1005.0)


async def test_a_chunk_that_takes_twice_its_usual_time_is_followed_by_a_rest(
    clock: list[float],
) -> None:
    pace = ChunkPace(1000)
    for _ in range(5):
        pace.note(1000, 100_000, 0.010)
        await pace.wait()
    assert clock[0] == 1000.0
    pace.note(1000, 100_000, 0.030)
    await pace.wait()
    assert clock[0] == pytest.approx(1000.030)


def test_the_configuration_knows_how_large_a_chunk_is() -> None:
    assert settings.CHUNK_BYTES == CHUNK_BYTES
