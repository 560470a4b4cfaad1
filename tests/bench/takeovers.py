"""How soon another process takes over: ``python -m tests.bench.takeovers``.

A takeover lasts from the signal to the owner until the next owner hands over its first change,
while 150 changes a second are written. Three processes share two scopes. Where they are ``full``,
each may follow one scope: so the owner of the other scope, which may be the preferred process, can
take no more.
"""

import argparse
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.bench import report
from tests.daemon import Daemon, until
from tests.load import real_load
from tests.mongod import ReplicaSet
from tests.orders import Orders
from tests.replicas import Replicas

TERM_SECONDS = 2
"""The target after SIGTERM; after SIGKILL it is the lease and as much (docs/replicas.md)."""
ROUNDS = 50
LONG_SECONDS, LONG_ROUNDS = 30, 10
"""Leases of this length take a minute for each kill: fewer rounds."""


@dataclass(frozen=True, slots=True)
class Series:
    """Takeovers with one lease, after one signal."""

    lease_seconds: int
    full: bool
    how: signal.Signals

    @property
    def most(self) -> float:
        """The target in seconds."""
        return TERM_SECONDS + (self.lease_seconds if self.how is signal.SIGKILL else 0)

    def __str__(self) -> str:
        full = ", processes at max_scopes" if self.full else ""
        return f"{self.how.name}, lease of {self.lease_seconds} s{full}"


SERIES = [
    Series(lease, full, how)
    for lease, full in [(10, False), (5, True), (10, True), (60, True)]
    for how in (signal.SIGTERM, signal.SIGKILL)
]


def measure(server: ReplicaSet, directory: Path, series: Series, rounds: int) -> list[float]:
    """Seconds until the next owner hands over a change, for each round."""
    database = f"takeover_{series.how.name.lower()}_{series.lease_seconds}_{series.full}".lower()
    found = []
    with (
        _sharing(server, directory, database, series) as replicas,
        real_load(server, database, 0.02),
    ):
        for _ in range(rounds):
            owner = replicas.until_owner()
            epoch = owner.status()["lease"]["epoch"]
            until(_reaches(replicas, epoch), "changes of the owner", 120)
            began = time.monotonic()
            owner.signal(series.how)
            until(_reaches(replicas, epoch + 1), "the next owner", series.lease_seconds + 120)
            found.append(time.monotonic() - began)
            owner.wait()
            owner.start()
    return found


@contextmanager
def _sharing(
    server: ReplicaSet, directory: Path, database: str, series: Series
) -> Iterator[Replicas]:
    made: list[Daemon] = []

    def make(uri: str, name: str, **sections: object) -> Daemon:
        made.append(Daemon(directory / name, uri, **sections))
        return made[-1]

    replicas = Replicas(Orders(server, database, make), lease=series.lease_seconds)
    try:
        for name in ("one", "two", "three"):
            run = replicas.daemon(name)
            run.configuration |= replicas.following("orders", "users")
            if series.full:
                run.configuration["replicas"]["max_scopes"] = 1
            run.start(ready=False)  # with one scope each, none is ready alone
        for run in made:
            run.until_ready()
        yield replicas
    finally:
        for run in made:
            run.kill()


def _reaches(replicas: Replicas, epoch: int) -> Callable[[], bool]:
    """Whether the last change was handed over with this epoch, or a later one."""
    path = next(iter(replicas.runs.values())).directory.parent / "handed-over"

    def reaches() -> bool:
        with open(path, "rb") as file:
            file.seek(max(file.seek(0, 2) - 200, 0))
            lines = file.read().decode().split("\n")
        return len(lines) > 2 and int(lines[-2].split()[1]) >= epoch

    return reaches


def summary(series: Series, seconds: Sequence[float]) -> str:
    """One line with the figures."""
    worst = max(seconds)
    return (
        f"{series}: median {median(seconds):.2f} s, slowest of {len(seconds)} {worst:.2f} s, "
        f"at most {series.most:g} s"
    )


def run(server: ReplicaSet, directory: Path, chosen: Sequence[Series], rounds: int) -> list[str]:
    """Measures and prints each series; returns those that missed their target."""
    missed = []
    for number, series in enumerate(chosen):
        most = min(rounds, LONG_ROUNDS) if series.lease_seconds > LONG_SECONDS else rounds
        seconds = measure(server, directory / str(number), series, most)
        line = summary(series, seconds)
        print(f"Takeover after {line}", flush=True)
        if max(seconds) > series.most:
            missed.append(line)
    return missed


def main() -> int:
    """Measures takeovers only; returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.takeovers")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each series")
    parser.add_argument("--lease", type=int, action="append", help="only leases of these seconds")
    options = parser.parse_args()
    chosen = [each for each in SERIES if not options.lease or each.lease_seconds in options.lease]
    print(report.machine())
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        server = ReplicaSet(Path(directory) / "mongod")
        try:
            return bool(run(server, Path(directory), chosen, options.rounds))
        finally:
            server.stop()


if __name__ == "__main__":
    raise SystemExit(main())
