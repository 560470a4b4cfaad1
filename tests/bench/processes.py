"""Measures processes from outside, pinned to a core, by the kernel's CPU times and memory sizes."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.stock import Kind
from tests.checkout import IMPORTS

ROOT = Path(__file__).parents[2]
QUIET_SECONDS = 0.1
_QUIET_CPU_SECONDS = 0.004
_LOOK_SECONDS = 0.01
_PATIENCE_SECONDS = 300.0
_CPUS = sorted(os.sched_getaffinity(0))
CLIENT_CPU = _CPUS[0]
SOURCE_CPU = _CPUS[-1]
"""The same core on a single-core machine, where the source reduces events/s but not CPU seconds."""


@dataclass(frozen=True, slots=True)
class Span:
    """What a process used while it handled ``events`` events."""

    events: int
    seconds: float
    cpu_seconds: float

    @property
    def cpu_per_million(self) -> float:
        """User and system CPU seconds for a million events."""
        return self.cpu_seconds / self.events * 1e6

    @property
    def events_per_second(self) -> float:
        """By wall-clock time, which depends on the machine's other load."""
        return self.events / self.seconds


class Source:
    """The scripted source, in a process."""

    def __init__(self, document_bytes: int, reply_events: int) -> None:
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.bench.source"),
                *(str(document_bytes), str(reply_events), str(SOURCE_CPU)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.uri = self._line()
        self.reply_events: float = reply_events

    def order(self, line: str) -> str:
        """Sends an order to the source; returns when it is done."""
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)
        answer = self._line()
        if not answer.startswith("done"):
            raise RuntimeError(f"the source answers {answer!r}")
        return answer

    def serve(self, replies: int) -> int:
        """Serves this many more replies; returns how many events the open cursors have had."""
        return int(self.order(f"serve {replies}").split()[1])

    def reload(self, document_bytes: int, reply_events: int, kind: Kind = "object_ids") -> None:
        """Serves other documents and replies from now on (``events`` 0: replies of 16 MB)."""
        order = f"reload {document_bytes} {reply_events} {kind}"
        _, events, replies = self.order(order).split()
        self.reply_events = int(events) / int(replies)

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the source has ended")
        return line.strip()


class Observed:
    """Another process, as the kernel reports it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    @property
    def cpu_seconds(self) -> float:
        """User and system time so far, measured in nanoseconds."""
        return time.clock_gettime((~self.pid << 3) | 2)  # CPUCLOCK_SCHED of another process

    @property
    def peak_mb(self) -> float:
        """The peak of its resident memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    @property
    def wants_to_run(self) -> bool:
        """True if one of its threads runs, or waits for a processor or a disk."""
        try:
            tasks = list(Path(f"/proc/{self.pid}/task").iterdir())
            states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks]
        except OSError:
            return True  # a thread has just ended
        return any(state in "RD" for state in states)

    def check(self) -> None:
        """Raises ``RuntimeError`` if the process has ended."""
        if not Path(f"/proc/{self.pid}").exists():
            raise RuntimeError(f"process {self.pid} has ended")

    def pin(self, cpu: int) -> None:
        """Keeps all its threads, and those that they will start, on one core."""
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):  # a thread has just ended
                os.sched_setaffinity(int(task.name), {cpu})


def until_quiet(*processes: Observed, quiet_seconds: float = QUIET_SECONDS) -> float:
    """Waits until the processes have nothing left to do; returns the ``perf_counter`` of that.

    Nothing to do means: each process has used almost no CPU for ``quiet_seconds``, and no thread
    wants to run at their end, as one does that waits for a busy machine's processor.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    most = _QUIET_CPU_SECONDS * quiet_seconds / QUIET_SECONDS
    began, used = time.perf_counter(), [each.cpu_seconds for each in processes]
    while time.monotonic() < deadline:
        now = [each.cpu_seconds for each in processes]
        if any(cpu - before > most for cpu, before in zip(now, used, strict=True)):
            began, used = time.perf_counter(), now
        elif time.perf_counter() - began >= quiet_seconds and not any(
            each.wants_to_run for each in processes
        ):
            return began
        time.sleep(_LOOK_SECONDS)
        for each in processes:
            each.check()
    raise RuntimeError("it does not come to rest")


class Client(Observed):
    """A process under measurement, pinned to its own core."""

    def __init__(self, arguments: Sequence[str], directory: Path, **environment: str) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._log = directory / "log"
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=directory,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONPATH": IMPORTS, **environment},
                preexec_fn=lambda: os.sched_setaffinity(0, {CLIENT_CPU}),
            )
        super().__init__(self._process.pid)

    def check(self) -> None:
        if self._process.poll() is not None:
            raise RuntimeError(f"{self._process.args!r} ended: {self._log.read_text()}")

    def handle(self, source: Source, replies: int, quiet_seconds: float) -> Span:
        """Makes the source serve this many replies, and measures how the client handles them."""
        until_quiet(self, quiet_seconds=quiet_seconds)
        before = source.serve(0)
        cpu, clock = self.cpu_seconds, time.perf_counter()
        events = source.serve(replies) - before
        ended = until_quiet(self, quiet_seconds=quiet_seconds)
        return Span(events, ended - clock, self.cpu_seconds - cpu)

    def handled(self) -> int:
        """How many events it has handled, which it prints at SIGUSR1."""
        self._process.send_signal(signal.SIGUSR1)
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def kill(self) -> None:
        """Kills the process."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
