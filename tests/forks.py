"""Processes of ``tailrace`` that are forked from one that has imported it.

A start of Python with all imports takes most of a second of CPU time, and the tests start some
thousand processes. Everything else is as in ``python -m tailrace``: the process has its own
directory, environment, output, signals and exit code. Tests of the start itself, and those that
change the environment of Python, start Python.
"""

import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

from tests.checkout import IMPORTS

PRELOADED = (
    *("tailrace.app", "tailrace.probe", "tailrace.drivers.motor", "tailrace.drivers.pymongo_async"),
    *("tailrace.stores.mongodb", "tailrace.stores.sqlite", "tailrace.destinations.jsonl"),
    *(f"tailrace.cli.{name}" for name in ("run", "scopes", "checkpoints", "dead_letters")),
    *("tailrace.cli.commands", "tailrace.cli.help_text"),
    # What they import when they run.
    *("anyio._backends._asyncio", "motor.motor_asyncio", "pymongo.mongo_client", "ruamel.yaml"),
    *("uvicorn.lifespan.off", "uvloop"),
    # Their clients take as long as all that a start does; that of the lake brings threads.
    *(f"tailrace.destinations.{name}" for name in ("http.senders", "nats.nats_destination")),
    *(f"tailrace.destinations.{name}" for name in ("postgresql.destination", "redis.keys")),
)

CONFIGURATION = """
mongodb: {{uri: "mongodb://localhost"}}
scopes: [{{name: orders, database: shop, collection: orders}}]
handlers: {{file: {{{handler}}}}}
routes: [{{scope: orders, handlers: [file]}}]
"""


class Fork:
    """A started process, with the methods of ``subprocess.Popen`` that the tests need."""

    returncode: int | None = None

    def __init__(
        self,
        arguments: Sequence[str],
        directory: Path,
        environ: Mapping[str, str],
        *,
        stdout: int,
        stderr: int,
    ) -> None:
        umask = os.umask(0)
        os.umask(umask)
        request = [list(arguments), str(directory), dict(environ), umask]
        reads, writes = os.pipe()
        socket.send_fds(_server()[0], [json.dumps(request).encode()], [stdout, stderr, writes])
        os.close(writes)
        self._told = os.fdopen(reads)
        self.pid = int(self._told.readline())

    def poll(self) -> int | None:
        """The exit code, or None while the process runs."""
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end; the exit code, or ``-n`` after signal n."""
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            with self._told:
                self.returncode = int(self._told.read())
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Command(Fork):
    """A started command; its output goes to these files, and its errors too."""

    def __init__(
        self,
        arguments: Sequence[str],
        directory: Path,
        environ: Mapping[str, str],
        *files: IO[str],
    ) -> None:
        self._files = files
        out, errors = (file.fileno() for file in files)
        super().__init__(arguments, directory, environ, stdout=out, stderr=errors)

    def communicate(self, timeout: float | None = None) -> list[str]:
        """Waits for the end; what it wrote to stdout and to stderr."""
        self.wait(timeout)
        for file in self._files:
            file.seek(0)
        return [file.read() for file in self._files]


@cache
def _server() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Starts the process that forks; it ends with this one, whose end of the socket then closes."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": IMPORTS},
            start_new_session=True,
        )
    return ours, process


def serve(requests: socket.socket) -> None:
    """Returns in each process that was asked for, and exits at the end of the requests."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
    while True:
        text, files, *_ = socket.recv_fds(requests, 1 << 20, 3)
        if not text:
            sys.exit()
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            requests.close()
            _keep(files)
            _become(*json.loads(text), *files)
            return
        for file in files:
            os.close(file)


def _keep(files: Sequence[int]) -> None:
    """Forks; tells the child's id and, at its end, its exit code. Returns in the child."""
    if child := os.fork():
        *outputs, exit_pipe = files
        for file in outputs:
            os.close(file)
        os.write(exit_pipe, f"{child}\n".encode())
        _, status = os.waitpid(child, 0)
        os.write(exit_pipe, str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)


def _become(
    arguments: list[str],
    directory: str,
    environ: dict[str, str],
    umask: int,
    stdout: int,
    stderr: int,
    exit_pipe: int,
) -> None:
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    for file in (stdout, stderr, exit_pipe):
        os.close(file)
    os.umask(umask)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environ)
    sys.path[0], sys.argv = directory, ["tailrace", *arguments]


def _preload() -> None:
    """Imports the modules, and reads a configuration, which makes Pydantic build the models."""
    for module in PRELOADED:
        importlib.import_module(module)
    from tailrace.config.loading import loads
    from tailrace.handlers.types import handler_models

    for handler in ("type: jsonl, path: events", "type: python, target: 'mine:note'"):
        loads(CONFIGURATION.format(handler=handler), handler_models, {})


if __name__ == "__main__":
    _preload()
    gc.collect()
    gc.freeze()  # else each child's collections would visit, and so copy, all that is shared
    serve(socket.socket(fileno=int(sys.argv[1])))
    from tailrace.cli import main

    sys.exit(main())
