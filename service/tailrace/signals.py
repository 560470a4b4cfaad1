"""The signals that ask the process to end. They are recorded and raise no exception.

An exception from a signal handler would appear wherever the main thread is, even in an import or a
destructor that swallows it. If the code that reads the record hangs, a thread ends the process.
This module imports little, so that it can listen before anything heavier is imported.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
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
    """

    def __init__(self) -> None:
        self.received: list[signal.Signals] = []
        self.last_resort = LastResort(START_SECONDS, 0.0, _leave_start)
        self._readable = self._writable = -1
        self._noted: SimpleQueue[signal.Signals | None] = SimpleQueue()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Records the signals that arrive while the block runs."""
        before = {number: signal.getsignal(number) for number in self._numbers()}
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._writable, False)
        self.listen()
        thread = Thread(target=self._give_up, name="last resort", daemon=True)
        thread.start()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._noted.put(None)
            thread.join()
            os.close(self._readable)
            os.close(self._writable)

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
        self.received.append(signal.Signals(number))
        self._noted.put(signal.Signals(number))  # reentrant, as a signal handler must be
        with suppress(BlockingIOError):  # the pipe is full, so the reader will wake anyway
            os.write(self._writable, b".")

    def _give_up(self) -> None:
        """Ends the process at the time that :attr:`last_resort` gives, which may change."""
        leave_to_main_thread()
        begun = forced = float("inf")
        while True:
            resort = self.last_resort
            end = min(begun + resort.seconds, forced + resort.forced_seconds)
            left = None if end == float("inf") else end - time.monotonic()
            if left is not None and left <= 0:
                resort.leave()
                return
            try:
                number = self._noted.get(timeout=left)
            except Empty:
                continue
            if number is None:
                return
            if begun == float("inf"):
                begun = time.monotonic()
            elif self.forces(number):
                forced = min(forced, time.monotonic())

    @staticmethod
    def _numbers() -> list[signal.Signals]:
        numbers = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it
            numbers.append(signal.SIGHUP)
        return numbers
