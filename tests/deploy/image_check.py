"""Proves the image in a real Docker engine, from nothing; prints each step. `make image-check`.

Needs root, and on Debian nothing else: what is missing is installed, the base image is made here
where it cannot be fetched, and containers, mounts, processes and files are gone at the end.
Arguments name further targets (lake, pipeline) to build and try.
Exit code 0 if every step held, 1 if one did not, 2 where no engine can be had.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.daemon import until
from tests.deploy import base_image
from tests.deploy.engine import Engine
from tests.machine import CheckFailed, free_port, run
from tests.mongod import ReplicaSet
from tests.packages import install

ROOT = Path(__file__).parents[2]
BASE = "python:3.12-slim"
IMAGE = "tailrace:check"
SECONDS = 1200
"""The longest that it may take, for the live image; from nothing it takes about two minutes."""

LARGEST_LIVE = 200_000_000
"""Bytes that the live image may add to its base, at the very most."""

RESTRICTED = (
    *("--network", "host", "--read-only", "--cap-drop", "ALL"),
    *("--security-opt", "no-new-privileges", "--memory", "256m", "--memory-swap", "256m"),
    *("--pids-limit", "100", "--health-interval", "1s"),
)
"""How the image must be able to run: what a careful operator grants, and no more."""


def why_no_engine() -> str:
    """Why a Docker engine cannot be had here; empty where it can."""
    if os.geteuid() != 0:
        return "a Docker engine of its own needs root"
    missing = [name for name in ("dockerd", "debootstrap") if not shutil.which(name)]
    if missing and not shutil.which("apt-get"):
        return f"{' and '.join(missing)} cannot be installed: there is no apt"
    return ""


class Steps:
    """What was proven, as it is proven, and what it took."""

    def __init__(self) -> None:
        self._begin = time.monotonic()

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._begin:6.1f} s  {text}", flush=True)


def require_that(held: Any, what: str, seen: object = "") -> None:
    """Raises :class:`CheckFailed` unless it held."""
    if not held:
        raise CheckFailed(f"{what}: {seen}" if seen != "" else what)


class Writer:
    """Inserts numbers until it is stopped: the load while the container dies and comes back."""

    def __init__(self, server: ReplicaSet) -> None:
        self.count = 0
        self._server = server
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write, name="writer")

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _write(self) -> None:
        with self._server.client() as client:
            orders = client["shop"]["orders"]
            while not self._stopping.wait(0.001):
                orders.insert_one({"_id": self.count})
                self.count += 1


class Service:
    """The container under test, on the machine's own network."""

    def __init__(self, engine: Engine, server: ReplicaSet) -> None:
        self.engine = engine
        self.port = free_port()
        self.name = "tailrace"
        self.volume = "tailrace-data"
        self.environ = {
            "MONGODB_URI": server.uri,
            "TAILRACE_DATABASE": "shop",
            "TAILRACE_HTTP_HOST": "127.0.0.1",
            "TAILRACE_HTTP_PORT": str(self.port),
        }

    def start(self) -> None:
        self.engine.docker(
            *("run", "--detach", "--name", self.name, "--restart", "on-failure"),
            *("--volume", f"{self.volume}:/data", *RESTRICTED, *self._variables(), IMAGE),
        )

    def attempt(
        self, environ: dict[str, str], volumes: Sequence[str]
    ) -> tuple[int, list[dict[str, Any]]]:
        """The exit code and the log of a container that is expected to refuse."""
        name = "refused"
        mounts = [part for volume in volumes for part in ("--volume", volume)]
        self.engine.docker(
            *("run", "--detach", "--name", name, *mounts, *RESTRICTED),
            *(*self._variables(environ), IMAGE),
        )
        code = int(self.engine.docker("wait", name, seconds=60))
        lines = [json.loads(line) for line in self.engine.logs(name).splitlines()]
        self.engine.docker("rm", name)
        return code, lines

    def _variables(self, changed: dict[str, str] | None = None) -> list[str]:
        """An empty value leaves the variable out."""
        pairs = {**self.environ, **(changed or {})}.items()
        return [part for name, value in pairs if value for part in ("--env", f"{name}={value}")]

    @property
    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.engine.inspect(self.name)["State"]
        return state

    def get(self, path: str) -> tuple[int, str]:
        try:
            url = f"http://127.0.0.1:{self.port}{path}"
            with urllib.request.urlopen(url, timeout=5) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def epoch(self) -> int:
        """Which owner of the scope has saved its position last: the first process is 1."""
        code, body = self.get("/status")
        scopes = json.loads(body)["scopes"] if code == 200 else {}
        saved = scopes.get("shop", {}).get("checkpoint")
        return saved["epoch"] if saved else 0

    def events(self) -> list[dict[str, Any]]:
        """What is on the volume, read from outside."""
        path = Path(self.engine.inspect(self.volume)["Mountpoint"]) / "events.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def ids(self) -> set[int]:
        return {event["documentKey"]["_id"] for event in self.events() if "documentKey" in event}

    def log(self) -> list[dict[str, Any]]:
        done = self.engine.logs(self.name)
        return [json.loads(line) for line in done.splitlines()]


# --- the steps -----------------------------------------------------------------------------


def build(engine: Engine, directory: Path, steps: Steps) -> None:
    """The base and the image; what the image must and must not hold."""
    root = directory / "base"
    what = base_image.make(root)
    engine.import_tree(root, BASE)
    shutil.rmtree(root)
    steps.say(f"a stand-in for {BASE}: {what}, {_megabytes(engine, BASE)}")
    engine.docker("build", "--network", "host", "--tag", IMAGE, str(ROOT), seconds=900)
    added = _size(engine, IMAGE) - _size(engine, BASE)
    steps.say(f"built: {_megabytes(engine, IMAGE)}, of which {added / 1e6:.0f} MB are ours")
    require_that(added < LARGEST_LIVE, "the live image is too large", added)
    found = engine.inspect(IMAGE)["Config"]
    require_that(found["User"] == "10001:10001", "the user is fixed", found["User"])
    require_that(found["StopSignal"] == "SIGTERM", "the signal is named", found["StopSignal"])
    require_that(found["Entrypoint"] == ["tailrace"], "process 1 is ours", found["Entrypoint"])
    require_that("org.opencontainers.image.licenses" in found["Labels"], "labels", found["Labels"])
    unwanted = "for name in pip pip3 gcc cc make java uv; do command -v $name && exit 1; done; true"
    engine.docker("run", "--rm", "--network", "host", "--entrypoint", "sh", IMAGE, "-c", unwanted)
    steps.say("user, signal, labels are as promised; no pip, no compiler, no Java is in it")


def build_more(engine: Engine, target: str, steps: Steps) -> None:
    """Another target: what is more in it than in the live one, and that it can be used."""
    image = f"tailrace:check-{target}"
    engine.docker(
        *("build", "--network", "host", "--target", target, "--tag", image, str(ROOT)), seconds=3600
    )
    uses = {
        "lake": (
            "import importlib.util as i, obstore, pyarrow;"
            "import tailrace.app, tailrace.handlers.parquet;"
            "assert not any(map(i.find_spec, ('numpy', 'pandas')));"
            "print('pyarrow', pyarrow.__version__)"
        ),
        "pipeline": (
            "import pyspark.sql; s = pyspark.sql.SparkSession.builder.master('local[1]')"
            ".config('spark.ui.enabled', 'false').getOrCreate();"
            "assert s.range(10).count() == 10; print('Spark', s.version)"
        ),
    }
    said = engine.docker(
        *("run", "--rm", "--read-only", "--tmpfs", "/tmp:exec", "--network", "host"),
        *("--cap-drop", "ALL", "--env", "SPARK_LOCAL_IP=127.0.0.1", "--entrypoint", "python"),
        *(image, "-c", uses[target]),
    )
    more = (_size(engine, image) - _size(engine, IMAGE)) / 1e6
    said = said.split(chr(10))[0].strip()
    steps.say(f"{target}: {_megabytes(engine, image)}, {more:.0f} MB more than live; {said}")


def follow(service: Service, server: ReplicaSet, steps: Steps) -> None:
    """Started with what a careful operator grants, healthy, scraped."""
    service.start()
    until(lambda: service.state["Health"]["Status"] == "healthy", "the health check", 90)
    until(lambda: service.get("/readyz")[0] == 200, "readiness", 60)
    steps.say("runs read-only, without capabilities, in 256 MB; healthy and ready")
    with server.client() as client:
        client["shop"]["orders"].insert_many({"_id": -number} for number in range(1, 501))
    until(lambda: len(service.ids()) == 500, "500 events on the volume", 60)
    code, text = service.get("/metrics")
    require_that(code == 200, "/metrics answers", code)
    for sample in (
        'tailrace_events_total{operation="insert",scope="shop"} 500.0',
        'tailrace_events_handled_total{handler="events",outcome="ok",scope="shop"} 500.0',
        'tailrace_dead_letters_total{handler="events",scope="shop"} 0.0',
    ):
        require_that(_has(text, sample), f"/metrics has {sample}", text)
    memory = _resident(text)
    judged = "promtool is not here to judge them"
    if promtool := shutil.which("promtool"):
        done = subprocess.run(
            [promtool, "check", "metrics"], input=text, text=True, capture_output=True, check=False
        )
        require_that(done.returncode == 0, "promtool accepts the metrics", done.stderr)
        judged = "promtool finds no fault"
    steps.say(f"500 events handled and scraped, {memory / 1e6:.0f} MB resident; {judged}")


def survive(service: Service, server: ReplicaSet, steps: Steps) -> None:
    """SIGKILL under load, three times: the engine starts it again, and nothing is missing."""
    with Writer(server) as writer:
        for killed in range(1, 4):
            seen = len(service.ids())
            until(lambda past=seen + 50: len(service.ids()) > past, "events under load", 60)
            # A life that dies before its first save repeats the one before it.
            until(lambda epoch=killed: service.epoch() == epoch, "a checkpoint of this life", 60)
            run(["kill", "-KILL", str(service.state["Pid"])])
            until(lambda times=killed: _restarted(service, times), "the engine's restart", 60)
    until(lambda: service.ids() >= set(range(writer.count)), "every write", 60)
    extra = len(service.events()) - len(service.ids())
    steps.say(f"killed 3 times under load: {writer.count} writes, none lost, {extra} came twice")


def drain(service: Service, server: ReplicaSet, steps: Steps) -> None:
    """A stop drains; the next start repeats nothing."""
    service.engine.docker("stop", "--time", "30", service.name)
    require_that(service.state["ExitCode"] == 0, "drained with exit code 0", service.state)
    last = service.log()[-1]
    require_that(last["event"] == "service.stopped", "its last words", last)
    before = len(service.events())
    with server.client() as client:
        client["shop"]["orders"].insert_one({"_id": -1000})
    service.engine.docker("start", service.name)
    until(lambda: -1000 in service.ids(), "the event of the pause", 60)
    require_that(len(service.events()) == before + 1, "nothing is repeated", len(service.events()))
    began = time.monotonic()
    service.engine.docker("stop", service.name)
    require_that(service.state["ExitCode"] == 0, "drained with exit code 0", service.state)
    took = time.monotonic() - began
    steps.say(f"stopped with exit code 0 (the last time in {took:.1f} s), repeated nothing")


def refuse(service: Service, directory: Path, steps: Steps) -> None:
    """Bad input: one JSON line, and the exit code of the contract."""
    binary = directory / "binary.yaml"
    binary.write_bytes(b"mongodb: {uri: caf\xe9}\n")
    nobody = free_port()
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken = holder.getsockname()[1]
        cases: list[tuple[str, int, str, dict[str, str], Sequence[str]]] = [
            ("no URI", 2, "variable MONGODB_URI is not set", {"MONGODB_URI": ""}, ()),
            ("a wrong URI", 2, "mongodb.uri", {"MONGODB_URI": "http://db"}, ()),
            (
                "a server that is not there",
                1,
                f"127.0.0.1:{nobody} cannot be reached",
                {"MONGODB_URI": f"mongodb://127.0.0.1:{nobody}/?serverSelectionTimeoutMS=500"},
                (f"{service.volume}:/data",),
            ),
            ("no volume", 2, "store.path", {}, ()),
            ("a read-only volume", 2, "store.path", {}, (f"{service.volume}:/data:ro",)),
            (
                "a port in use",
                2,
                f":{taken}: Address already",
                {"TAILRACE_HTTP_PORT": f"{taken}"},
                (),
            ),
            ("an endless file", 2, "is larger than", {"TAILRACE_CONFIG": "/dev/zero"}, ()),
            ("no UTF-8", 2, "is not UTF-8", {}, (f"{binary}:/etc/tailrace/config.yaml:ro",)),
        ]
        for name, code, told, environ, volumes in cases:
            ended, lines = service.attempt(environ, volumes)
            failures = [line for line in lines if line["level"] != "info"]
            require_that(ended == code, f"{name}: exit code {code}", (ended, lines))
            require_that(len(failures) == 1, f"{name}: one line says it", lines)
            require_that(told in failures[0]["reason"], f"{name}: it says {told!r}", failures)
    names = ", ".join(case[0] for case in cases)
    steps.say(f"refused, in one JSON line, with the contract's exit code: {names}")


def _has(metrics: str, sample: str) -> bool:
    return sample in metrics.splitlines()


def _resident(metrics: str) -> float:
    """Bytes of memory, as the process itself says."""
    name = "process_resident_memory_bytes "
    return next(float(line[len(name) :]) for line in metrics.splitlines() if line.startswith(name))


def _restarted(service: Service, times: int) -> bool:
    found = service.engine.inspect(service.name)
    return bool(found["RestartCount"] == times and found["State"]["Running"])


def _size(engine: Engine, image: str) -> int:
    return int(engine.inspect(image)["Size"])


def _megabytes(engine: Engine, image: str) -> str:
    return f"{_size(engine, image) / 1e6:.0f} MB"


# --- the whole -----------------------------------------------------------------------------


def check(targets: Sequence[str]) -> None:
    """All steps for the live image, and the building of others; raises :class:`CheckFailed`,
    or ``AssertionError`` where a wait was in vain.
    """
    steps = Steps()
    installed = install(dockerd="docker.io", debootstrap="debootstrap")
    steps.say(f"installed from Debian: {', '.join(installed) or 'nothing, all is here'}")
    directory = Path(tempfile.mkdtemp(prefix="tailrace-image-"))
    try:
        with Engine(directory / "engine") as engine:
            steps.say("an engine of our own is up")
            build(engine, directory, steps)
            server = ReplicaSet(directory / "server")
            try:
                service = Service(engine, server)
                follow(service, server, steps)
                survive(service, server, steps)
                drain(service, server, steps)
                refuse(service, directory, steps)
            finally:
                server.stop()
            for target in targets:
                build_more(engine, target, steps)
    finally:
        shutil.rmtree(directory)
    steps.say("all held; containers, mounts, processes and files are gone")


def _too_long(*_: object) -> None:
    raise CheckFailed("it takes too long")


def main() -> int:
    """Exit code 0, 1 or 2; see above."""
    if why_not := why_no_engine():
        print(f"image-check: {why_not}", file=sys.stderr)
        return 2
    targets = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of the clean-up
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(SECONDS + len(targets) * 1800)
    try:
        check(targets)
    except (CheckFailed, AssertionError) as error:
        print(f"image-check: FAILED: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
