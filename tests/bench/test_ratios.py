"""Guards what the benchmark promises: a change that halves the speed does not pass unseen.

CPU time, and ratios within one run, so that a busy machine slows both sides; and six tenths of
what is promised is enough, because a shared core still makes CPU seconds of different worth. A
ratio that is missed all the same is measured once more, and the better one counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from tests.bench import contenders
from tests.bench.comparison import compare
from tests.bench.contenders import Contender
from tests.bench.processes import Source

_SLACK = 0.6
_SCALE = 0.06
_GUARDED = (
    contenders.EVENT,
    contenders.EVENTS,
    contenders.RAW,
    contenders.RELAXED,
    contenders.PARQUET,
)


@pytest.fixture
def source() -> Iterator[Source]:
    running = Source(320, 1000)
    yield running
    running.close()


def missed(source: Source, guarded: Sequence[Contender]) -> dict[str, str]:
    """Who is not what it must be, by name, and by how much."""
    bases = {base for each in guarded for base in each.bounds}
    run = [each for each in contenders.ALL if each.name in bases or each in guarded]
    rows = compare(source, run, 1, _SCALE)
    costs = {row.contender.name: row.cpu_per_million for row in rows}
    found = {}
    for row in rows:
        if row.contender not in guarded:
            continue
        name = row.contender.name
        for base, least in row.contender.bounds.items():
            ratio = costs[base] / costs[name]
            if ratio < least * _SLACK:
                found[name] = f"{ratio:.1f} x {base} where {least} is promised"
        if row.peak_mb > row.contender.most_mb / _SLACK:
            found[name] = f"{row.peak_mb:.0f} MB"
    return found


@pytest.mark.integration
def test_the_service_is_as_much_cheaper_than_the_drivers_streams_as_it_says(
    source: Source,
) -> None:
    """Every contender also proves that it has handled exactly what was sent."""
    suspects = missed(source, _GUARDED)
    if suspects:
        still = missed(source, [each for each in _GUARDED if each.name in suspects])
        assert not still
