"""The service as users run it: a process with a configuration file, signals and HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import yaml

from tests.checkout import IMPORTS
from tests.forks import Command, Fork

WAIT_SECONDS = 60.0
BEHIND_SECONDS = 2.0


def until(
    condition: Callable[[], Any],
    what: str,
    seconds: float = WAIT_SECONDS,
    progress: Callable[[], Any] = lambda: None,
) -> Any:
    """Polls until the condition is true, and returns its value.

    Fails after so many seconds, counted anew at each other value of ``progress``.
    """
    deadline = time.monotonic() + seconds
    before = None
    pause = 0.02
    while not (result := condition()):
        if (now := progress()) != before:
            before, deadline = now, time.monotonic() + seconds
        assert time.monotonic() < deadline, f"waited {seconds} s in vain: {what}"
        time.sleep(pause)
        pause = min(1.1 * pause, 0.1)  # what is asked often takes the time of the one who works
    return result


class Daemon:
    """``tailrace run`` in a directory of its own.

    The default is one scope ``orders`` on ``shop.orders``, routed to ``events.jsonl``. Keywords
    replace whole sections of the configuration.
    """

    def __init__(self, directory: Path, uri: str, **sections: Any) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.configuration: dict[str, Any] = {
            "mongodb": {"uri": uri},
            "store": {"path": "tailrace.db"},
            "checkpoint": {"interval_seconds": 0.1},
            "http": {"port": 0},
            "supervisor": {"first_seconds": 0.05, "cap_seconds": 0.5},
            "shutdown": {"grace_seconds": 10},
            "scopes": [
                {
                    "name": "orders",
                    "database": "shop",
                    "collection": "orders",
                    "max_await_time_ms": 200,
                }
            ],
            "handlers": {"file": {"type": "jsonl", "path": "events.jsonl", "json": "canonical"}},
            "routes": [{"scope": "orders", "handlers": ["file"]}],
            **sections,
        }
        self.process: Fork | subprocess.Popen[bytes] | None = None
        self.port = 0
        self._begin = 0
        self.environ: dict[str, str] = {}
        """Added to the environment of the next start."""

    def configured(self) -> Path:
        """Writes the configuration, as a start does; returns its path."""
        path = self.directory / "config.yaml"
        path.write_text(yaml.safe_dump(self.configuration, sort_keys=False))
        return path

    # --- start and stop ------------------------------------------------------------------------

    def start(self, *, ready: bool = True, output: int | None = None) -> Daemon:
        """Starts the process; its output goes to its log or to ``output``.

        With another ``output``, ``http.port`` must be set, because the port is not in the log.
        """
        path = self.configured()
        with open(self.directory / "log", "ab") as log:
            self._begin = log.tell()
            to = log.fileno() if output is None else output
            start: Any = Fork if _OF_PYTHON.isdisjoint(self.environ) else _started
            environ = _environment() | self.environ
            command = ["run", "--config", str(path)]
            self.process = start(command, self.directory, environ, stdout=to, stderr=to)
        return self.until_ready() if ready else self

    def until_answers(self) -> Daemon:
        """Waits until the HTTP port is known."""
        self.port = self.configuration["http"].get("port", 0)
        if not self.port:
            started = until(
                lambda: self._logged("service.starting", self._begin) or self._dead(), "the start"
            )
            assert started is not True, f"the service ended:\n{self.log}"
            self.port = started["http_port"]
        return self

    def until_ready(self) -> Daemon:
        """Waits until ``/readyz`` answers 200."""
        self.until_answers()
        until(lambda: self.get("/readyz")[0] == 200 or self._dead(), "readiness")
        assert not self._dead(), f"the service ended:\n{self.log}"
        return self

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self, seconds: float = WAIT_SECONDS) -> int:
        """Waits for the process to end, and returns its exit code."""
        assert self.process is not None
        return self.process.wait(seconds)

    def stop(self) -> int:
        self.signal()
        return self.wait()

    def halts(self) -> str:
        """Waits until its scope halts, and stops the process, which stays; returns the reason."""
        halted = until(
            lambda: self._logged("scope.halted", self._begin) or self._dead(), "the halt"
        )
        assert halted is not True, f"the service ended:\n{self.log}"
        self.until_answers()
        assert self.get("/readyz")[0] == 503
        assert self.stop() in (0, 3), self.log  # 3: it is fenced, and cannot save its last
        return str(halted["error"])

    def kill(self) -> None:
        """Sends SIGKILL if the process runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _dead(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None

    def command(self, *arguments: str) -> str:
        """Runs another command with this configuration, which must succeed; returns its output."""
        with self.begun(*arguments) as process:
            out, errors = process.communicate(WAIT_SECONDS)
        assert process.returncode == 0, errors
        return out

    def refused(self, *arguments: str) -> tuple[int, str]:
        """The exit code and the errors of another command, which must fail."""
        with self.begun(*arguments) as process:
            _, errors = process.communicate(WAIT_SECONDS)
        assert process.returncode, errors
        return process.returncode, errors

    @contextmanager
    def begun(self, *arguments: str) -> Iterator[Command]:
        """Starts another command with this configuration; killed at the end of the block."""
        with TemporaryFile("w+") as out, TemporaryFile("w+") as errors:
            process = Command(arguments, self.directory, _environment(), out, errors)
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    # --- what it reports -----------------------------------------------------------------------

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def status(self, scope: str = "orders") -> dict[str, Any]:
        body = self.get("/status")[1]
        scopes: dict[str, dict[str, Any]] = json.loads(body)["scopes"] if body else {}
        return scopes.get(scope, {})

    def is_behind(self, scope: str = "orders") -> bool:
        """Whether changes wait for seconds to be handled, far less than what stops a snapshot."""
        lags = self.status(scope).get("lag_seconds") or {}
        return max(map(float, filter(None, lags.values())), default=0.0) > BEHIND_SECONDS

    def until_handled(self, **changes: int) -> None:
        """Waits until each of these handlers has had so many changes since the process began.

        That nothing is in flight does not say so: a handler may be about to read what it lacks on a
        stream of its own. It says that what was counted no longer holds a place.
        """

        def have_them() -> bool:
            status = self.status()
            had = {
                name: each["ok"] + each["dead_letter"] for name, each in status["handlers"].items()
            }
            all_of_them = all(had[name] >= count for name, count in changes.items())
            return all_of_them and status["in_flight"]["events"] == 0

        until(have_them, f"the end of the handling: {changes}")

    def snapshot_state(self, scope: str = "orders") -> str | None:
        """The state of its last snapshot, if there is one."""
        return (self.status(scope).get("snapshot") or {}).get("state")

    def until_copied(self, scope: str = "orders") -> None:
        """Waits for the end of the last snapshot, however long, if more documents are handled."""

        def scanned() -> int | None:
            return (self.status(scope).get("snapshot") or {}).get("scanned")

        until(lambda: self.snapshot_state(scope) == "done", "the snapshot", progress=scanned)

    def metric(self, name: str, **labels: str) -> float | None:
        """The value of a sample, or ``None`` if it is not exported."""
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith((f"{name}{{", f"{name} ")) and all(
                f'{label}="{value}"' in line for label, value in labels.items()
            ):
                return float(line.rpartition(" ")[2])
        return None

    def letters(self) -> list[dict[str, Any]]:
        """The dead letters that wait in its store. It counts them for its metric only at times."""
        letters, next = list[dict[str, Any]](), ""
        while next is not None:
            body = self.get(f"/dead-letters?after={urllib.parse.quote(next)}")[1]
            page = json.loads(body) if body else {"letters": [], "next": None}
            letters, next = letters + page["letters"], page["next"]
        return letters

    @property
    def log(self) -> str:
        path = self.directory / "log"
        return path.read_text() if path.exists() else ""

    def logged(self, event: str) -> list[dict[str, Any]]:
        return [entry for entry in entries(self.log) if entry.get("event") == event]

    def _logged(self, event: str, begin: int) -> dict[str, Any] | None:
        text = (self.directory / "log").read_bytes()[begin:].decode()
        return next((entry for entry in entries(text) if entry.get("event") == event), None)

    def events(self, name: str = "events.jsonl") -> list[dict[str, Any]]:
        """The events that the jsonl handler has written, as plain JSON."""
        path = self.directory / name
        return [json.loads(line) for line in whole_lines(path.read_text())] if path.exists() else []

    def ids(self, name: str = "events.jsonl") -> list[Any]:
        """``documentKey._id`` of each event that has one, with canonical numbers as integers."""
        return [
            _plain(event["documentKey"]["_id"])
            for event in self.events(name)
            if "documentKey" in event
        ]

    def numbers(self, name: str) -> list[int]:
        """The numbers that a test's own handler has written to a file, one a line."""
        path = self.directory / name
        return [int(line) for line in whole_lines(path.read_text())] if path.exists() else []

    def until_events(self, count: int, name: str = "events.jsonl") -> list[dict[str, Any]]:
        path = self.directory / name
        until(
            lambda: path.exists() and path.read_bytes().count(b"\n") >= count,
            f"{count} events in {name}",
        )
        return self.events(name)


def whole_lines(text: str) -> list[str]:
    """The complete lines. The last line may be partial while the process writes."""
    return text[: text.rfind("\n") + 1].split("\n")[:-1]


def entries(log: str) -> list[dict[str, Any]]:
    """The log's JSON lines. A damaged one, torn or joined to another, fails the test."""
    found = []
    for line in whole_lines(log):
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise AssertionError(f"{error}: {line!r} in the log:\n{log}") from error
    return found


_OF_PYTHON = {"LD_PRELOAD", "PYTHONPATH"}
"""Variables that Python itself reads, so that a fork would not."""


def _started(
    arguments: Sequence[str], directory: Path, environ: dict[str, str], *, stdout: int, stderr: int
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tailrace", *arguments]
    return subprocess.Popen(command, cwd=directory, env=environ, stdout=stdout, stderr=stderr)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": IMPORTS}


def _plain(value: Any) -> Any:
    if isinstance(value, dict) and set(value) <= {"$numberInt", "$numberLong"}:
        return int(next(iter(value.values())))
    return value


Make = Callable[..., Daemon]
"""The type of the fixture ``daemon``."""


def scopes(*names: str) -> dict[str, Any]:
    """Sections for a daemon: each scope follows the collection of the same name in ``shop``."""
    return {
        "scopes": [
            {"name": name, "database": "shop", "collection": name, "max_await_time_ms": 200}
            for name in names
        ],
        "routes": [{"scope": name, "handlers": ["file"]} for name in names],
    }


def files(*names: str) -> dict[str, Any]:
    """Sections for a daemon: each scope has a file of its own, ``NAME.jsonl``."""
    handlers = {n: {"type": "jsonl", "path": f"{n}.jsonl", "json": "canonical"} for n in names}
    return {"handlers": handlers, "routes": [{"scope": n, "handlers": [n]} for n in names]}


GATE = """\
import anyio

async def wait(event):
    while not await anyio.Path("open").exists():
        await anyio.sleep(0.02)
    if event.document_key:
        with open("handled", "a") as file:
            print(event.document_key["_id"], file=file)
"""


def gated(run: Daemon) -> Callable[[], None]:
    """Makes the handler ``file`` hold its events until the returned function is called.

    Then their ``_id`` are the lines of ``handled``. While no file is named ``open``, it holds them.
    """
    run.configuration["handlers"] = {"file": {"type": "python", "target": "gate:wait"}}
    (run.directory / "gate.py").write_text(GATE)
    return (run.directory / "open").touch
