"""The signals that ask the process to end or to reload. They are recorded and raise no exception.

An exception from a signal handler would appear wherever the main thread is, even in an import or a
destructor that swallows it. If the code that reads the record hangs, a thread ends the process.
This module imports little, so that it can listen before anything heavier is imported.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Thread
from types import FrameType

START_SECONDS = 5.0
"""How long a start may take to react to a signal: it may import a handler or read a slow disk."""


@dataclass(frozen=True, slots=True)
class LastResort:
    """When a thread calls ``leave`` to end the process: ``seconds`` after the first signal, or
    ``forced_seconds`` after a second one that forces the end."""

    seconds: float
    forced_seconds: float
    leave: Callable[[], object]


def _leave_start() -> None:
    os._exit(0)  # nothing is followed yet, so there is nothing to drain


def leave_to_main_thread() -> None:
    """Blocks all signals in this thread. A signal delivered here would not wake the main thread,
    where Python's handlers run, from a sleep or a read."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


class StopSignals:
    """SIGTERM, SIGINT and SIGHUP, in the order of their arrival. The first one requests a stop.

    A second one forces the stop, except SIGHUP, which a closing terminal sends more than once.
    Without a controlling ``terminal``, SIGHUP requests a reload instead: then nothing but an
    operator sends it.
    """

    def __init__(self, *, terminal: bool | None = None) -> None:
        self.received: list[signal.Signals] = []
        self.hang_ups = 0
        """How many reloads were requested."""
        self._terminal = _has_terminal() if terminal is None else terminal
        self.last_resort = LastResort(START_SECONDS, 0.0, _leave_start)
        self._readable = self._writable = self._arrived = -1
        self._closed = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Records the signals that arrive while the block runs."""
        before = {number: signal.getsignal(number) for number in self._numbers()}
        self._closed = False
        self._readable, self._writable = _pipe()
        readable, self._arrived = _pipe()
        # Written when a signal arrives, even if the main thread then blocks in a system call before
        # Python's handler runs. An event loop may replace it: it wakes up for signals itself.
        earlier = signal.set_wakeup_fd(self._arrived, warn_on_full_buffer=False)
        self.listen()
        thread = Thread(target=self._give_up, args=(readable,), name="last resort", daemon=True)
        thread.start()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(earlier)
            self._closed = True
            _wake(self._arrived)
            thread.join()
            for descriptor in (self._readable, self._writable, readable, self._arrived):
                os.close(descriptor)

    def listen(self) -> None:
        """Installs the signal handlers. Call it again if other code may have replaced them."""
        for number in self._numbers():
            signal.signal(number, self._note)

    @staticmethod
    def forces(number: signal.Signals) -> bool:
        """Whether this signal forces the end if it is not the first one."""
        return number is not signal.SIGHUP

    async def wait(self) -> None:
        """Returns as soon as a signal has arrived since the last call."""
        from anyio import wait_readable

        await wait_readable(self._readable)
        os.read(self._readable, 512)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP and not self._terminal:
            self.hang_ups += 1
            _wake(self._writable)
            return
        self.received.append(signal.Signals(number))
        _wake(self._writable)
        _wake(self._arrived)

    def _give_up(self, readable: int) -> None:
        """Ends the process at the time that :attr:`last_resort` gives, which may change.

        ``readable`` has bytes after a signal, at least one byte each.
        """
        leave_to_main_thread()
        begun = forced = float("inf")
        while True:
            resort = self.last_resort
            end = min(begun + resort.seconds, forced + resort.forced_seconds)
            left = None if end == float("inf") else end - time.monotonic()
            if left is not None and left <= 0:
                resort.leave()
                return
            if not select.select((readable,), (), (), left)[0]:
                continue
            arrived = os.read(readable, 512)
            if self._closed:
                return
            if not self._terminal and all(each == signal.SIGHUP for each in arrived):
                continue
            begun = min(begun, time.monotonic())
            if any(map(self.forces, self.received[1:])):
                forced = min(forced, time.monotonic())

    @staticmethod
    def _numbers() -> list[signal.Signals]:
        numbers = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it
            numbers.append(signal.SIGHUP)
        return numbers


def _has_terminal() -> bool:
    """Whether a terminal controls this process. It sends SIGHUP when it closes."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _pipe() -> tuple[int, int]:
    """A pipe whose writing end does not block, as in a signal handler it must not."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    return readable, writable


def _wake(writable: int) -> None:
    with suppress(BlockingIOError):  # the pipe is full, so the reader will wake anyway
        os.write(writable, b".")
