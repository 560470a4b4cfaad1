"""A number of kills, each after a fault that is drawn by lot, and the account of them all."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from service.observe.text import columns
from tests.daemon import until
from tests.embedded import Embedded
from tests.faults.chaos.disk import small_disk
from tests.faults.chaos.faults import FAULTS, NEED_A_DISK, Ground
from tests.faults.chaos.history import Findings, derived, differences, examine, regressions
from tests.faults.chaos.service import Service, Watch
from tests.faults.chaos.writers import Writers, connect
from tests.faults.proxy import Proxy

DATABASE = "chaos"
_MOST_LOG = 6000
_MOST_LINES = 40  # of complaints: one cause has many


@dataclass(slots=True)
class Round:
    """A fault, the lives that ended in it or behind it, and how often the service recovered."""

    fault: str
    lives: range
    within: bool
    """Whether the kill came before the fault was mended."""
    recoveries: int


@dataclass(slots=True)
class Report:
    """What came of a campaign."""

    seed: int
    writers: int
    kills: int = 0
    rounds: list[Round] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    positions: int = 0
    written: int = 0
    seconds: float = 0.0
    not_run: Sequence[str] = ()

    @property
    def good(self) -> bool:
        """Whether nothing was lost, reordered, or repeated without need."""
        return not self.findings.complaints

    def __str__(self) -> str:
        headings = (
            *("FAULT", "ROUNDS", "KILLED IN IT", "RECOVERIES"),
            *("REPEATED", "MOST AT ONCE", "RESULT"),
        )
        lines = [
            columns(headings, [self._row(name) for name in FAULTS]),
            f"seed {self.seed}, {self.writers} writers, {self.kills} kills, {self.seconds:.0f} s: "
            f"{self.written} changes written, {self.findings.changes} arrived, and "
            f"{self.findings.again} times one came again; {self.positions} checkpoints seen",
        ]
        for life, text in self.findings.complaints[:_MOST_LINES]:
            lines.append(text if life is None else f"life {life}: {text}")
        count = len(self.findings.complaints)
        lines.append("Nothing lost, nothing reordered." if self.good else f"{count} COMPLAINTS.")
        return "\n".join(lines)

    def _row(self, name: str) -> tuple[str, ...]:
        if name in self.not_run:
            return (name, "0", *"----", "NOT RUN: this user may not mount a disk")
        rounds = [each for each in self.rounds if each.fault == name]
        # What comes again does so in the lives behind those that ended.
        ended = [life for each in rounds for life in each.lives]
        repeated = [self.findings.repeated[life + 1] for life in ended]
        restarted = [self.findings.restarted[life] for life in ended]
        lives = {life + more for life in ended for more in (0, 1)}
        wrong = sum(len(self.findings.of(life)) for life in lives)
        return (
            name,
            str(len(rounds)),
            str(sum(each.within for each in rounds)),
            str(sum(each.recoveries for each in rounds)),
            str(sum(repeated) + sum(restarted)),
            str(max(repeated, default=0)),
            f"{wrong} COMPLAINTS" if wrong else "good" if rounds else "not drawn",
        )


def run(
    directory: Path, *, kills: int, writers: int, seed: int, tell: Callable[[str], None]
) -> Report:
    """Kills the service so often while ``writers`` write; waits for the last change; looks at all.

    Raises ``AssertionError`` where it cannot go on: the service ended by itself, or hangs.
    """
    began = time.monotonic()
    report = Report(seed, writers)
    with _ground(directory, seed) as ground, connect(ground.server.uri) as client:
        service, collection = ground.service, client[DATABASE].counters
        report.not_run = () if ground.disk else NEED_A_DISK
        service.start()
        with Watch(ground.store) as watch:
            with Writers(collection, writers, seed) as writing:
                for fault in _drawn(kills, ground):
                    try:
                        report.rounds.append(_round(ground, fault))
                    except AssertionError as error:
                        error.add_note(f"in round {len(report.rounds) + 1}, {fault}; its log:")
                        error.add_note(service.said[-_MOST_LOG:])
                        raise
                    tell(f"{service.kills:4} kills, {writing.count:6} changes: {fault}")
            last = writing.close()
            until(lambda: service.has(last), "the last change", seconds=120)
            assert service.stop() == 0, service.said
        report.kills, report.findings = service.kills, examine(writing.written, service.lives)
        report.findings.add(regressions(watch.seen))
        there = {each["_id"]: each for each in collection.find()}
        report.findings.add(differences(derived(service.events()), there))
        report.positions, report.written = len(watch.seen), writing.count
    report.seconds = time.monotonic() - began
    return report


@contextmanager
def _ground(directory: Path, seed: int) -> Iterator[Ground]:
    with ExitStack() as stack:
        store = directory / "store"
        disk = stack.enter_context(small_disk(store))
        server = Embedded(directory / "server")
        stack.callback(server.stop)
        proxy = stack.enter_context(Proxy(server.port, poses=True))
        uri = f"mongodb://{proxy.address}/?replicaSet=secantus&heartbeatFrequencyMS=500"
        service = Service(directory / "run", store, uri, DATABASE)
        stack.callback(service.discard)
        draw = random.Random(seed)
        yield Ground(server, proxy, service, store, DATABASE, disk, draw)


def _drawn(kills: int, ground: Ground) -> Iterator[str]:
    """Every fault in turn, each turn in another order, until it is so many kills."""
    names = [name for name in FAULTS if ground.disk or name not in NEED_A_DISK]
    while True:
        ground.draw.shuffle(names)
        for name in names:
            if ground.service.kills >= kills:
                return
            yield name


def _round(ground: Ground, name: str) -> Round:
    draw, service = ground.draw, ground.service
    first = len(service.lives)
    service.until_more(draw.randint(5, 150))
    within = draw.random() < 0.5
    with FAULTS[name](ground):
        if within and not service.ended:
            _kill(ground)
    if not service.ended:
        service.until_more(draw.randint(1, 100))
        _kill(ground)
    service.start()
    lives = range(first, len(service.lives))
    return Round(name, lives, within, sum(service.recovered[life] for life in lives))


def _kill(ground: Ground) -> None:
    # Not always right behind a line that was written: that is when we look.
    time.sleep(ground.draw.uniform(0, 0.3))
    ground.service.kill()
