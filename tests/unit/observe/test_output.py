"""Standard output and error never block, report lost lines, and keep their order."""

import fcntl
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from termios import FIONREAD

import pytest

from tailrace.observe.output import Output, QueuedFile
from tests.guards import HANGS_SECONDS

PIPE_BYTES = 4096


class Pipe:
    """A small pipe, and a file that queues before it; ``reports`` has its reports of lost lines."""

    def __init__(self) -> None:
        self.reads, self.writes = os.pipe()
        fcntl.fcntl(self.writes, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self.reports: list[int] = []
        self.recovered = threading.Event()
        self.file = QueuedFile(self.writes, "pipe", self._tell, queue_bytes=PIPE_BYTES + 1 + 1000)

    def _tell(self, lines: int) -> None:
        self.reports.append(lines)
        self.recovered.set()

    def fill(self) -> None:
        """Simulates a reader that has stopped: the pipe is full, and the thread is in its write."""
        self.file.write(b"x" * (PIPE_BYTES + 1))
        while not self._has(PIPE_BYTES):
            pass

    def _has(self, size: int) -> bool:
        return int.from_bytes(fcntl.ioctl(self.reads, FIONREAD, b"\0" * 4), sys.byteorder) == size

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += os.read(self.reads, size - len(data))
        return data


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    os.close(made.reads)
    assert made.file.drain(10)
    os.close(made.writes)


def test_if_the_reader_has_stopped_nobody_waits_and_lost_lines_are_counted(
    pipe: Pipe,
) -> None:
    pipe.fill()
    queued = [b"%099d\n" % number for number in range(10)]
    for line in (*queued, b"one too many\n", b"two\nlines\n"):
        pipe.file.write(line)
    assert pipe.file.dropped == 3
    assert not pipe.file.drain(0)
    # When it reads again it gets all queued lines, and the log reports the rest.
    rest = pipe.read(PIPE_BYTES + 1 + 1000)
    assert rest[PIPE_BYTES + 1 :] == b"".join(queued)
    assert pipe.recovered.wait(HANGS_SECONDS)
    assert pipe.reports == [3]
    pipe.file.write(b"the next\n")
    assert pipe.read(9) == b"the next\n"
    assert pipe.file.dropped == 3


def test_a_pipe_that_does_not_block_is_waited_for(pipe: Pipe) -> None:
    """Another process that shares the pipe may have made it non-blocking."""
    os.set_blocking(pipe.writes, False)
    pipe.fill()
    pipe.file.write(b"a line\n")
    assert pipe.read(PIPE_BYTES + 8)[-7:] == b"a line\n"
    assert pipe.file.drain(10)
    assert pipe.file.dropped == 0


def test_a_line_that_was_cut_off_does_not_spoil_the_next_one(tmp_path: Path) -> None:
    with open(tmp_path / "log", "ab") as log:
        file = QueuedFile(log.fileno(), "log")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
        try:
            file.write(b"first\nsecond\n")
            assert file.drain(10)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        file.write(b"third\n")
        assert file.drain(10)
        assert (tmp_path / "log").read_bytes() == b"first\nseco\nthird\n"
        assert file.dropped == 1


def test_what_is_printed_is_text_of_any_kind(capfd: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    with Output() as output:
        print("to the left", "é \ud800")
        print("to the right", file=sys.stderr)
        sys.stdout.buffer.write(b"bytes\n")
        assert (sys.stdout.fileno(), sys.stderr.fileno()) == (1, 2)
        assert not sys.stdout.isatty()
    assert (sys.stdout, sys.stderr) == before
    written = capfd.readouterr()
    assert written.out == "to the left é \\ud800\nbytes\n"
    assert written.err == "to the right\n"
    assert output.dropped == 0


def test_a_fork_prints_by_itself() -> None:
    """It has a copy of the queue, but no thread that would empty it."""
    program = (
        "import os\n"
        "from tailrace.observe.output import Output\n"
        "with Output() as output:\n"
        "    print('parent')\n"
        "    output.drain()\n"
        "    if os.fork() == 0:\n"
        "        print('child')\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
    )
    run = [sys.executable, "-W", "ignore", "-c", program]
    assert subprocess.run(run, check=True, capture_output=True).stdout == b"parent\nchild\n"


def test_descriptors_that_are_closed_are_not_left_to_the_next_file(tmp_path: Path) -> None:
    """Otherwise a store that is opened as file 2 would get the log written into it."""
    program = (
        "import os, sys\n"
        "from tailrace.observe.output import Output\n"
        "with Output() as output:\n"
        f"    file = open({str(tmp_path / 'store')!r}, 'w')\n"
        "    print('a line', file=sys.stderr)\n"
        "    output.drain()\n"
        "    sys.exit(0 if file.fileno() > 2 else 1)\n"
    )
    command = f'{sys.executable} -c "$PROGRAM" 2>&- >&-'
    ended = subprocess.run(["sh", "-c", command], env={**os.environ, "PROGRAM": program})
    assert ended.returncode == 0
    assert (tmp_path / "store").read_bytes() == b""
