"""CPU and wall time of the tests by directory or file, of all their processes: ``-p tests.times``.

CPU time is that of the process that runs the tests and of all processes below it, alive or ended.
What outlives its parent, as the Java of a command, is only in the time of the whole machine.
"""

import os
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

TICKS = os.sysconf("SC_CLK_TCK")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--times-by", choices=["directory", "file"], default="directory", help="rows of the table"
    )


class Clock:
    """Reads what this process and those below it have used since the last reading."""

    def __init__(self) -> None:
        self._read = cpu_seconds(os.getpid())

    def lap(self) -> float:
        # A process that ends while it is read is missing in one reading: its parent has its time
        # in the next one.
        before, self._read = self._read, max(cpu_seconds(os.getpid()) for _ in range(2))
        return max(self._read - before, 0)


def cpu_seconds(process: int) -> float:
    """Seconds of CPU time of a process, of its ended children, and of those that live."""
    try:
        # proc_pid_stat(5): after the name come state, ..., utime, stime, cutime and cstime.
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        own = sum(int(field) for field in fields[11:15]) / TICKS
        return own + sum(map(cpu_seconds, children(process)))
    except (FileNotFoundError, ProcessLookupError):
        return 0.0  # ended meanwhile: its parent has its time from now on


def machine_seconds() -> float:
    """Seconds of CPU time of all processes since the start of the machine."""
    user, nice, system = Path("/proc/stat").read_text().split()[1:4]
    return (int(user) + int(nice) + int(system)) / TICKS


def children(process: int) -> Iterator[int]:
    for task in Path(f"/proc/{process}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread ended meanwhile
            yield from map(int, (task / "children").read_text().split())


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Recorder(config), "tailrace-times")


class Recorder:
    """Measures the tests of a file where they run; the process that prints adds them up.

    A reading looks at each thread of each server, which takes as long as a short test: it is
    taken where a file ends, not after each test.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._by_file = config.getoption("--times-by") == "file"
        self._clock, self._machine = Clock(), machine_seconds()
        self._cpu: dict[str, float] = defaultdict(float)
        self._wall: dict[str, float] = defaultdict(float)
        self._collection = 0.0
        self._file_ends = False

    def pytest_collection_finish(self) -> None:
        self._collection = self._clock.lap()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        self._file_ends = nextitem is None or nextitem.path != item.path
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self,
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        # Attributes that xdist carries over.
        if report.when == "teardown" and self._file_ends:
            report.cpu_seconds = self._clock.lap()
        report.collection_seconds, self._collection = self._collection, 0.0
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        path = Path(report.nodeid.partition("::")[0])
        row = str(path) if self._by_file else "/".join(path.parts[:2])
        self._cpu[row] += getattr(report, "cpu_seconds", 0.0)
        self._wall[row] += report.duration
        self._cpu["imports and collection"] += getattr(report, "collection_seconds", 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("time in seconds")
        terminalreporter.line(f"{'CPU':>8} {'wall':>8}")
        for row, cpu in sorted(self._cpu.items(), key=lambda item: -item[1]):
            terminalreporter.line(f"{cpu:8.1f} {self._wall[row]:8.1f}  {row}")
        cpu, wall = sum(self._cpu.values()), sum(self._wall.values())
        terminalreporter.line(f"{cpu:8.1f} {wall:8.1f}  all tests")
        machine = machine_seconds() - self._machine
        terminalreporter.line(f"{machine:8.1f} {'':8}  all processes of the machine meanwhile")
