"""SIGTERM at any moment of the start: never lost, never a traceback, always exit code 0.

The moments are counted, not timed: CPython tells an audit hook about every import, every opened
file and every socket (PEP 578). The hook sends the signal at the moment that a test names, and at
the latest when the daemon first connects to the server.
"""

import signal
from pathlib import Path

import pytest

from tests.checkout import IMPORTS
from tests.daemon import Daemon, until
from tests.orders import Orders

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

MOMENTS = 5
"""How many of the thousands of moments are tried, including the first and the last."""


def test_a_signal_at_any_moment_of_the_start_is_never_lost(orders: Orders, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HOOK)

    def start(moment: int, number: signal.Signals = signal.SIGTERM) -> Daemon:
        run = orders.daemon(f"at-{moment}-{number.name}")
        run.environ = {
            "PYTHONPATH": f"{tmp_path}:{IMPORTS}",
            "SIGNAL_AT": str(moment),
            "SIGNAL_NUMBER": str(int(number)),
        }
        return run.start(ready=False)

    counting = start(0)
    counted = counting.directory / "counted"
    last = int(until(lambda: counted.exists() and counted.read_text(), "the first connection"))
    assert counting.stop() == 0, counting.log
    moments = [max(1, round(last * n / (MOMENTS - 1))) for n in range(MOMENTS)]
    tried = [(moment, signal.SIGTERM) for moment in moments]
    for moment, number in [*tried, (last // 2, signal.SIGINT)]:
        run = start(moment, number)
        assert run.wait() == 0, f"{number.name} at moment {moment} of {last}:\n{run.log}"
        assert "Traceback" not in run.log
        assert run.logged("service.stopped"), f"moment {moment} of {last}:\n{run.log}"


IN_A_DESTRUCTOR = """
import os
import signal


class Sends:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)


Sends()
"""

TAKES_IT_AWAY = """
import signal

signal.signal(signal.SIGTERM, signal.SIG_IGN)
"""

HANGS = """
import pathlib
import time

pathlib.Path("hangs").touch()
time.sleep(3600)
"""


def with_module(orders: Orders, source: str) -> Daemon:
    """A daemon whose handler's module has this source."""
    source += "\n\nasync def handle(event):\n    pass\n"
    return orders.daemon(targets={"mine": {"target": "mine:handle"}}, source=source)


def test_a_signal_in_a_destructor_is_not_lost(orders: Orders) -> None:
    """In a destructor, from which no exception escapes, during the import of a handler's module."""
    run = with_module(orders, IN_A_DESTRUCTOR).start(ready=False)
    assert run.wait() == 0, run.log
    assert run.logged("service.stopped")
    assert "Traceback" not in run.log


def test_a_module_that_ignores_the_signal_does_not_take_it_from_us(orders: Orders) -> None:
    run = with_module(orders, TAKES_IT_AWAY).start()
    assert run.stop() == 0, run.log


@pytest.mark.parametrize("more", [[], [signal.SIGINT]], ids=["in a while", "at once"])
def test_a_start_that_hangs_is_left(orders: Orders, more: list[signal.Signals]) -> None:
    """No scope is followed yet, so there is nothing to drain; a second signal forces the exit."""
    run = with_module(orders, HANGS).start(ready=False)
    until((run.directory / "hangs").exists, "the import")
    for number in (signal.SIGTERM, *more):
        run.signal(number)
    assert run.wait() == 0, run.log
    assert run.logged("service.stopped")
