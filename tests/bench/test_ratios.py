"""Guards the promised ratios of the benchmark: a change that halves the speed fails here.

It compares ratios of CPU time. What else runs on the machine takes the caches from a process, and
so only adds to its CPU time: the least of several runs counts, of both sides of a ratio. What
misses a bound is measured again, together with what it is compared to. Six tenths of a promised
ratio are enough.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

import pytest

from tests.bench import contenders
from tests.bench.__main__ import STANDARD
from tests.bench.comparison import compare, neighbours
from tests.bench.contenders import Contender
from tests.bench.processes import Source

_GUARDED = (contenders.EVENT, contenders.RELAXED, contenders.PARQUET)
_SLACK = 0.6
_SCALE = 0.06
_ROUNDS = 5
_TURNS = 6
_DEARER = 2.2
"""The most that an event in another layout than mongod's plain one may cost, as a ratio; 1.6 is
usual."""


@pytest.fixture(scope="module")
def source() -> Iterator[Source]:
    running = Source(*STANDARD)
    yield running
    running.close()


@pytest.fixture(scope="module")
def various() -> Iterator[Source]:
    """Events in other layouts."""
    running = Source(*STANDARD)
    running.reload(*STANDARD, "various")
    yield running
    running.close()


@dataclass(slots=True)
class Least:
    """By name of a contender, the least of its runs: CPU time of an event, and peak of memory."""

    cpu: dict[str, float] = field(default_factory=dict)
    mb: dict[str, float] = field(default_factory=dict)

    def measure(self, source: Source, guarded: Sequence[Contender]) -> None:
        """One more run of each, and of what they are compared to."""
        bases = {base for each in guarded for base in each.bounds}
        run = [each for each in contenders.ALL if each.name in bases or each in guarded]
        for row in compare(source, run, 1, _SCALE):
            name, cost, mb = row.contender.name, row.cpu_per_million, row.peak_mb
            self.cpu[name] = min(cost, self.cpu.get(name, cost))
            self.mb[name] = min(mb, self.mb.get(name, mb))

    def misses(self, each: Contender) -> list[str]:
        """The bounds that a contender misses, with what was measured."""
        ratios = {base: self.cpu[base] / self.cpu[each.name] for base in each.bounds}
        found = [
            f"{each.name}: {ratios[base]:.1f} x {base} where {least} is promised"
            for base, least in each.bounds.items()
            if ratios[base] < least * _SLACK
        ]
        if self.mb[each.name] > each.most_mb / _SLACK:
            found.append(f"{each.name}: {self.mb[each.name]:.0f} MB")
        return found


@pytest.mark.integration
def test_an_event_costs_no_more_than_is_promised(source: Source) -> None:
    """Every contender also proves that it has handled exactly the events that were sent."""
    least, suspected = Least(), [*_GUARDED, contenders.EVENTS, contenders.RAW]
    for _ in range(_ROUNDS):
        least.measure(source, suspected)
        suspected = [each for each in suspected if least.misses(each)]
        if not suspected:
            break
    assert not [miss for each in suspected for miss in least.misses(each)]


@pytest.mark.integration
@pytest.mark.parametrize("contender", _GUARDED, ids=lambda each: each.name)
def test_an_event_in_another_layout_costs_hardly_more(
    source: Source, various: Source, contender: Contender
) -> None:
    """Numbers, texts and UUIDs as keys, shard keys, expanded events, transactions."""
    ratios: list[float] = []
    for _ in range(_ROUNDS):
        ratios += neighbours((source, various), contender, _TURNS, _SCALE)
        if median(ratios) <= _DEARER:
            break
    assert median(ratios) <= _DEARER, ratios
