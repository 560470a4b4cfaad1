"""SIGTERM at any moment of the start: never lost, never a traceback, always exit code 0.

The moments are counted, not timed: CPython tells an audit hook of every import, every file that is
opened, every socket (PEP 578), and the hook sends the signal at the one that a test names, at the
latest when the daemon connects to the server for the first time.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.checkout import IMPORTS
from tests.daemon import Daemon, Make, until
from tests.mongod import ReplicaSet

HOOK = """
import os
import signal
import sys

number = int(os.environ["SIGNAL_NUMBER"])
at, log = int(os.environ["SIGNAL_AT"]), "counted"
count = 0


def hook(event, arguments):
    global count
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        return  # nobody listens yet: the signal would end the process
    count += 1
    connects = event == "socket.connect" and not os.path.exists(log)
    if connects:
        with open(log, "w") as file:
            file.write(str(count))
    if at and (count == at or (connects and count < at)):
        os.kill(os.getpid(), number)


sys.addaudithook(hook)
"""

MOMENTS = 12
"""How many of the thousands of moments are tried; the first and the last are among them."""


class Start:
    """Daemons that get a signal at a moment of their start."""

    def __init__(self, mongod: ReplicaSet, daemon: Make, directory: Path) -> None:
        (directory / "sitecustomize.py").write_text(HOOK)
        self._make, self._uri, self._directory = daemon, mongod.uri, directory
        self.last = self._count()

    def _count(self) -> int:
        """How many moments there are until the daemon is connected."""
        run = self._daemon("counting", 0, signal.SIGTERM).start()
        counted = run.directory / "counted"
        until(counted.exists, "the first connection")
        assert run.stop() == 0, run.log
        return int(counted.read_text())

    def at(self, moment: int, number: signal.Signals = signal.SIGTERM) -> Daemon:
        return self._daemon(f"at-{moment}", moment, number).start(ready=False)

    def _daemon(self, name: str, moment: int, number: signal.Signals) -> Daemon:
        run = self._make(self._uri, name)
        run.environ = {
            "PYTHONPATH": f"{self._directory}:{IMPORTS}",
            "SIGNAL_AT": str(moment),
            "SIGNAL_NUMBER": str(int(number)),
        }
        return run


@pytest.fixture
def start(mongod: ReplicaSet, daemon: Make, tmp_path: Path) -> Start:
    return Start(mongod, daemon, tmp_path)


def test_the_signal_is_never_lost(start: Start) -> None:
    step = start.last / (MOMENTS - 1)
    for moment in sorted({max(1, round(step * n)) for n in range(MOMENTS)}):
        run = start.at(moment)
        assert run.wait() == 0, f"moment {moment} of {start.last}:\n{run.log}"
        assert "Traceback" not in run.log
        assert run.logged("service.stopped"), f"moment {moment} of {start.last}:\n{run.log}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_so_it_is_with_the_other_signals(start: Start, number: signal.Signals) -> None:
    run = start.at(start.last // 2, number)
    assert run.wait() == 0, run.log
    assert run.logged("service.stopped"), run.log


IN_AN_IMPORT = """
import os
import signal

os.kill(os.getpid(), signal.SIGTERM)
"""

IN_A_DESTRUCTOR = """
import os
import signal


class Sends:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)


Sends()
"""

AND_IS_TAKEN_AWAY = """
import signal

signal.signal(signal.SIGTERM, signal.SIG_IGN)
"""

HANDLER = """

async def handle(event):
    pass
"""


def with_module(mongod: ReplicaSet, daemon: Make, source: str) -> Daemon:
    """A daemon whose handler's module has this source."""
    handlers = {"mine": {"type": "python", "target": "mine:handle"}}
    routes = [{"scope": "orders", "handlers": ["mine"]}]
    run = daemon(mongod.uri, handlers=handlers, routes=routes)
    (run.directory / "mine.py").write_text(source + HANDLER)
    return run


@pytest.mark.parametrize("source", [IN_AN_IMPORT, IN_A_DESTRUCTOR])
def test_where_an_exception_would_be_swallowed(
    mongod: ReplicaSet, daemon: Make, source: str
) -> None:
    """In the import of a handler's module, and in a destructor, which no exception leaves."""
    run = with_module(mongod, daemon, source).start(ready=False)
    assert run.wait() == 0, run.log
    assert run.logged("service.stopped")
    assert "Traceback" not in run.log


def test_a_module_that_ignores_the_signal_does_not_take_it_from_us(
    mongod: ReplicaSet, daemon: Make
) -> None:
    run = with_module(mongod, daemon, AND_IS_TAKEN_AWAY).start()
    assert run.stop() == 0, run.log


@pytest.mark.parametrize("more", [[], [signal.SIGINT]], ids=["in a while", "at once"])
def test_a_start_that_hangs_is_left(
    mongod: ReplicaSet, daemon: Make, more: list[signal.Signals]
) -> None:
    """Nothing is followed yet, so there is nothing to drain; a second signal forces."""
    hangs = "import pathlib, time\npathlib.Path('hangs').touch()\ntime.sleep(3600)\n"
    run = with_module(mongod, daemon, hangs).start(ready=False)
    until((run.directory / "hangs").exists, "the import")
    for number in (signal.SIGTERM, *more):
        run.signal(number)
    assert run.wait() == 0, run.log
    assert run.logged("service.stopped")
