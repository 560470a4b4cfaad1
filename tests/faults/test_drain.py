"""SIGTERM while handlers work: running calls are finished or come again; and the exit code."""

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from collections import Counter

import pytest

from tests.checkout import IMPORTS
from tests.daemon import Daemon, until
from tests.faults.odd import Odd
from tests.orders import Orders

LAST_SAVE_ONLY = {"interval_seconds": 3600}
"""So long that only the final save is there at the next start."""


def in_a_terminal(run: Daemon) -> int:
    """Starts the daemon as the leader of a terminal's session; the end that closes the terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tailrace", "run", "--config", str(run.configured())]
    with open(run.directory / "log", "ab") as log:
        run.process = subprocess.Popen(
            command,
            cwd=run.directory,
            env={**os.environ, "PYTHONPATH": IMPORTS},
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0),
        )
    os.close(theirs)
    run.until_ready()
    return ours


def stopping(odd: Odd, number: signal.Signals = signal.SIGTERM) -> None:
    odd.run.signal(number)
    until(lambda: odd.run.logged("service.stopping"), "the signal")


def test_events_that_slow_handlers_started_are_finished_and_never_come_again(
    orders: Orders,
) -> None:
    """Both kinds: single events, four at once, and a sequence. No further call begins."""
    odd = Odd(orders, "slow", "slow_batch", checkpoint=LAST_SAVE_ONLY)
    odd.run.configuration["handlers"]["slow"]["concurrency"] = 4
    odd.run.configuration["handlers"]["slow_batch"]["batch_size"] = 3
    odd.run.start()
    odd.insert(*range(10))
    until(lambda: len(odd.noted("begun")) == 4, "as many as may run at once")
    until(lambda: odd.noted("batch-begun"), "the sequence")
    stopping(odd)
    odd.insert(*range(10, 20))
    assert odd.run.get("/readyz")[0] == 503
    assert odd.run.get("/livez")[0] == 200
    odd.open()
    assert odd.run.wait() == 0, odd.run.log
    assert sorted(odd.noted("ended")) == sorted(odd.noted("begun")) == [0, 1, 2, 3]
    assert odd.noted("batch-ended") == odd.noted("batch-begun") == [0, 1, 2]
    odd.run.start()
    odd.until_noted("ended", *range(20))
    odd.until_noted("batch-ended", *range(20))
    odd.ends_well()
    assert Counter(odd.noted("ended")) == Counter(range(20))
    assert odd.noted("batch-ended") == list(range(20))


def test_a_hang_up_drains_and_a_second_one_does_not_force(orders: Orders) -> None:
    """A closing terminal sends SIGHUP more than once."""
    odd = Odd(orders, "slow", checkpoint=LAST_SAVE_ONLY)
    terminal = in_a_terminal(odd.run)
    odd.insert(0)
    odd.until_noted("begun", 0)
    os.close(terminal)
    until(lambda: odd.run.logged("service.stopping"), "the signal of the terminal")
    odd.run.signal(signal.SIGHUP)
    odd.open()
    assert odd.run.wait() == 0, odd.run.log
    assert not odd.run.logged("service.forced")
    odd.run.start()
    odd.insert(1)
    odd.until_noted("ended", 1)
    odd.ends_well()
    assert odd.noted("ended") == [0, 1]


def test_a_handler_that_blocks_the_event_loop_does_not_keep_the_process(orders: Orders) -> None:
    """Nothing in the event loop can end the handler; its changes come again."""
    odd = Odd(orders, "keeps_the_loop", shutdown={"grace_seconds": 3600})
    odd.run.start()
    odd.insert(0)
    (blocked,) = until(lambda: odd.run.logged("event_loop.blocked"), "the warning")
    assert (blocked["scope"], blocked["handler"]) == ("orders", "keeps_the_loop")
    odd.run.signal(signal.SIGTERM)
    odd.run.signal(signal.SIGINT)
    assert odd.run.wait() == 3, odd.run.log
    assert odd.run.logged("service.not_drained")
    odd.open()
    odd.run.start()
    odd.until_noted("ended", 0)
    odd.ends_well()


@pytest.mark.parametrize(
    ("target", "grace_seconds", "forced"),
    [("slow", 1, False), ("in_a_thread", 1, False), ("swallows", 3600, True)],
)
def test_a_hanging_handler_is_abandoned_after_grace_seconds_and_earlier_events_are_saved(
    orders: Orders, target: str, grace_seconds: int, forced: bool
) -> None:
    """Cancellable or not; at the end of the grace period or by a second signal."""
    shutdown = {"grace_seconds": grace_seconds}
    odd = Odd(orders, target, checkpoint=LAST_SAVE_ONLY, shutdown=shutdown)
    odd.open()
    odd.run.start()
    odd.insert(0, 1, 2)
    odd.until_noted("ended", 0, 1, 2)
    odd.run.until_handled(**{target: 3})
    odd.close()
    odd.insert(3, 4)
    odd.until_noted("begun", 3, 4)
    stopping(odd)
    if forced:
        odd.run.signal(signal.SIGINT)
    assert odd.run.wait() == 3, odd.run.log
    assert odd.run.logged("service.not_drained")
    assert bool(odd.run.logged("service.forced")) == forced
    assert "Traceback" not in odd.run.log
    assert sorted(odd.noted("ended")) == [0, 1, 2]
    assert "No dead letters" in odd.run.command("dead-letters", "list")
    odd.open()
    odd.run.start()
    odd.until_noted("ended", 3, 4)
    odd.ends_well()
    assert Counter(odd.noted("ended")) == Counter(range(5))
    assert Counter(odd.noted("begun")) == Counter([0, 1, 2, 3, 4, 3, 4])
