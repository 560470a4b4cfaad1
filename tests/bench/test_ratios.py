"""Guards the promised ratios of the benchmark: a change that halves the speed fails here.

It compares ratios of CPU time within one run, so that a busy machine slows both sides. Six tenths
of a promised ratio are enough, because CPU seconds vary on a shared core. A missed ratio is
measured once more.
"""

from collections.abc import Iterator, Sequence

import pytest

from tests.bench import contenders
from tests.bench.__main__ import STANDARD
from tests.bench.comparison import compare
from tests.bench.contenders import Contender
from tests.bench.processes import Source

_SLACK = 0.6
_SCALE = 0.06
_VARIOUS = (contenders.EVENT, contenders.RELAXED, contenders.PARQUET)
_DEARER = 2.2
"""The most that an event in another layout than mongod's plain one may cost, as a ratio; 1.6 is
usual."""


@pytest.fixture
def source() -> Iterator[Source]:
    running = Source(*STANDARD)
    yield running
    running.close()


def suspects(source: Source, guarded: Sequence[Contender]) -> dict[str, str]:
    """The contenders that miss a bound, by name, with what was measured."""
    bases = {base for each in guarded for base in each.bounds}
    run = [each for each in contenders.ALL if each.name in bases or each in guarded]
    source.reload(*STANDARD)
    rows = {row.contender.name: row for row in compare(source, run, 1, _SCALE)}
    found = {}
    for each in guarded:
        row = rows[each.name]
        for base, least in each.bounds.items():
            ratio = rows[base].cpu_per_million / row.cpu_per_million
            if ratio < least * _SLACK:
                found[each.name] = f"{ratio:.1f} x {base} where {least} is promised"
        if row.peak_mb > each.most_mb / _SLACK:
            found[each.name] = f"{row.peak_mb:.0f} MB"
    source.reload(*STANDARD, "various")
    for row in compare(source, [each for each in _VARIOUS if each in guarded], 1, _SCALE):
        name = row.contender.name
        ratio = row.cpu_per_million / rows[name].cpu_per_million
        if ratio > _DEARER:
            found[name] = f"{ratio:.1f} x for other layouts"
    return found


@pytest.mark.integration
def test_an_event_costs_no_more_than_is_promised(source: Source) -> None:
    """Every contender also proves that it has handled exactly the events that were sent.

    Other layouts: numbers, texts and UUIDs as keys, shard keys, expanded events, transactions.
    """
    guarded = (*_VARIOUS, contenders.EVENTS, contenders.RAW)
    if suspected := suspects(source, guarded):
        assert not suspects(source, [each for each in guarded if each.name in suspected])
