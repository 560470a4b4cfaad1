"""What a signal that asks the process to end does, in every phase of the process."""

import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tailrace.observe.output import QueuedFile
from tailrace.signals import LastResort, StopSignals
from tests.daemon import until
from tests.guards import HANGS_SECONDS, against_hanging

ALL = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


class Leaving:
    """Records the exit of the process (``left``) instead of making it exit."""

    def __init__(self) -> None:
        self.left = threading.Event()

    def resort(self, seconds: float, forced_seconds: float) -> LastResort:
        return LastResort(seconds, forced_seconds, self.left.set)


@pytest.fixture
def leaving() -> Leaving:
    return Leaving()


@pytest.fixture
def signals(leaving: Leaving) -> Iterator[StopSignals]:
    """Listens for signals; whatever comes, it never exits the process by itself."""
    signals = StopSignals(terminal=True)
    signals.last_resort = leaving.resort(3600, 3600)
    with signals.listening():
        yield signals


@pytest.mark.parametrize("number", ALL)
async def test_each_is_noted_and_wakes_who_waits(
    signals: StopSignals, number: signal.Signals
) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(signals.wait)
        await anyio.wait_all_tasks_blocked()
        signal.raise_signal(number)
    assert signals.received == [number]


async def test_those_that_came_before_anybody_waited_are_not_lost(signals: StopSignals) -> None:
    for number in ALL:
        signal.raise_signal(number)
    with against_hanging():
        await signals.wait()
    assert signals.received == ALL


def test_the_process_is_left_when_the_time_is_over(signals: StopSignals, leaving: Leaving) -> None:
    signals.last_resort = leaving.resort(0, 3600)
    signal.raise_signal(signal.SIGTERM)
    assert leaving.left.wait(HANGS_SECONDS)


def test_a_second_one_shortens_the_time(signals: StopSignals, leaving: Leaving) -> None:
    signals.last_resort = leaving.resort(3600, 0)
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGHUP)
    assert not leaving.left.wait(0)
    signal.raise_signal(signal.SIGINT)
    assert leaving.left.wait(HANGS_SECONDS)


def test_the_process_is_left_though_the_main_thread_never_ran_the_handler(
    signals: StopSignals, leaving: Leaving
) -> None:
    """As when a signal arrives just before a system call that blocks, such as reading a pipe."""
    signals.last_resort = leaving.resort(0, 3600)
    main = Path(f"/proc/self/task/{os.getpid()}/stat")

    def arrive_beside_it() -> None:
        until(lambda: ") S " in main.read_text(), "that the main thread waits")
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    threading.Thread(target=arrive_beside_it).start()
    assert leaving.left.wait(HANGS_SECONDS)


async def test_a_hang_up_without_a_terminal_requests_a_reload_and_no_stop(leaving: Leaving) -> None:
    signals = StopSignals(terminal=False)
    signals.last_resort = leaving.resort(0, 0)
    with signals.listening():
        signal.raise_signal(signal.SIGHUP)
        with against_hanging():
            await signals.wait()
        assert (signals.received, signals.hang_ups) == ([], 1)
        signal.raise_signal(signal.SIGTERM)
        assert leaving.left.wait(HANGS_SECONDS)
    assert signals.received == [signal.SIGTERM]


def test_a_hang_up_that_is_ignored_stays_ignored() -> None:
    """Like under ``nohup``."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        signals = StopSignals()
        with signals.listening():
            signal.raise_signal(signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signals.received == []
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_handlers_are_as_before_at_the_end() -> None:
    before = [signal.getsignal(number) for number in ALL]
    with StopSignals().listening():
        assert [signal.getsignal(number) for number in ALL] != before
    assert [signal.getsignal(number) for number in ALL] == before


def test_no_thread_of_ours_takes_a_signal(signals: StopSignals) -> None:
    """It would not wake the main thread from a sleep; two signals at once were lost that way."""
    reads, writes = os.pipe()
    before = set(threading.enumerate())
    file = QueuedFile(writes, "pipe")
    (writer,) = set(threading.enumerate()) - before
    (last_resort,) = (each for each in before if each.name == "last resort")
    for thread in (writer, last_resort):
        status = Path(f"/proc/self/task/{thread.native_id}/status")

        def blocked(status: Path = status) -> bool:
            (mask,) = re.findall(r"^SigBlk:\s*([0-9a-f]+)$", status.read_text(), re.MULTILINE)
            return all(int(mask, 16) >> (number - 1) & 1 for number in ALL)

        until(blocked, f"that {thread.name} blocks them")
    assert file.drain(10)
    os.close(reads)
