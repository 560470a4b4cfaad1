"""Guards what the benchmark promises: a change that halves the speed does not pass unseen.

CPU time, and ratios within one run, so that a busy machine slows both sides; and six tenths of
what is promised is enough, because a shared core still makes CPU seconds of different worth. A
ratio that is missed all the same is measured once more, and the better one counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from tests.bench import contenders
from tests.bench.__main__ import STANDARD
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

_DEARER = 2.2
"""How much more an event may cost that is not in mongod's plain layout; 1.6 are usual."""


@pytest.fixture
def source() -> Iterator[Source]:
    running = Source(*STANDARD)
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


def dearer(source: Source, guarded: Sequence[Contender]) -> dict[str, str]:
    """For whom various events cost too much more than plain ones, by name."""
    costs = []
    for various in (False, True):
        source.reload(*STANDARD, various=various)
        rows = compare(source, guarded, 1, _SCALE)
        costs.append({row.contender.name: row.cpu_per_million for row in rows})
    plain, other = costs
    ratios = {name: other[name] / plain[name] for name in plain}
    return {name: f"{ratio:.1f} x" for name, ratio in ratios.items() if ratio > _DEARER}


@pytest.mark.integration
def test_events_of_other_layouts_are_found_by_their_place_too(source: Source) -> None:
    """Numbers, texts and UUIDs as keys, shard keys, expanded events, transactions."""
    guarded = (contenders.EVENT, contenders.RELAXED, contenders.PARQUET)
    suspects = dearer(source, guarded)
    if suspects:
        assert not dearer(source, [each for each in guarded if each.name in suspects])
