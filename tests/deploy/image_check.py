"""Tests the image in a real Docker engine, from scratch; prints each step. `make image-check`.

Needs root; on Debian it installs whatever is missing. It builds a base image if it cannot fetch
one, and removes containers, mounts, processes and files at the end. Arguments name the further
targets to build and import; without arguments these are all (destinations, lake, pipeline). Exit
code 0 if every step passed, 1 if one failed, 2 if there can be no engine.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.daemon import until
from tests.deploy import base_image
from tests.deploy.engine import Engine
from tests.load import Load
from tests.machine import CheckFailed, free_port, run
from tests.mongod import ReplicaSet
from tests.packages import install

ROOT = Path(__file__).parents[2]
BASE = "python:3.12-slim"
IMAGE = "tailrace:check"
SECONDS = 1200
"""The time limit for the live image; from scratch it takes about two minutes."""

LARGEST_LIVE = 100_000_000
"""The most bytes that the live image may add to its base."""

TARGETS = ("destinations", "lake", "pipeline")

RESTRICTED = (
    *("--network", "host", "--read-only", "--cap-drop", "ALL"),
    *("--security-opt", "no-new-privileges", "--memory", "256m", "--memory-swap", "256m"),
    *("--pids-limit", "100", "--health-interval", "1s"),
)
"""The restrictions under which the image must run, as a careful operator sets them."""


def why_no_engine() -> str:
    """Why a Docker engine cannot run here; empty if it can."""
    if os.geteuid() != 0:
        return "a Docker engine of its own needs root"
    missing = [name for name in ("dockerd", "mmdebstrap") if not shutil.which(name)]
    if missing and not shutil.which("apt-get"):
        return f"{' and '.join(missing)} cannot be installed: there is no apt"
    return ""


def say(text: str) -> None:
    print(text, flush=True)


def require_that(held: Any, what: str, seen: object = "") -> None:
    """Raises :class:`CheckFailed` unless the condition is true."""
    if not held:
        raise CheckFailed(f"{what}: {seen}" if seen != "" else what)


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

    def attempt(self, environ: dict[str, str]) -> tuple[int, list[dict[str, Any]]]:
        """The exit code and the log of a container that is expected to refuse to start."""
        self.engine.docker(
            *("run", "--detach", "--name", "refused", "--volume", f"{self.volume}:/data"),
            *(*RESTRICTED, *self._variables(environ), IMAGE),
        )
        code = int(self.engine.docker("wait", "refused", seconds=60))
        lines = [json.loads(line) for line in self.engine.logs("refused").splitlines()]
        self.engine.docker("rm", "refused")
        return code, lines

    def _variables(self, changed: dict[str, str] | None = None) -> list[str]:
        """An empty value leaves the variable out."""
        pairs = {**self.environ, **(changed or {})}.items()
        return [part for name, value in pairs if value for part in ("--env", f"{name}={value}")]

    @property
    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.engine.inspect(self.name)["State"]
        return state

    def get(self, path: str) -> str:
        """The answer; empty if there is none, or if its status is not 200."""
        try:
            url = f"http://127.0.0.1:{self.port}{path}"
            with urllib.request.urlopen(url, timeout=5) as reply:
                return str(reply.read().decode())
        except OSError:
            return ""

    def saved(self) -> bool:
        """Whether the scope has a checkpoint."""
        scopes = json.loads(self.get("/status") or "{}").get("scopes", {})
        return bool(scopes.get("shop", {}).get("checkpoint"))

    def events(self) -> list[dict[str, Any]]:
        """The events on the volume, read from outside the container."""
        path = Path(self.engine.inspect(self.volume)["Mountpoint"]) / "events.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def ids(self) -> set[int]:
        return {event["documentKey"]["_id"] for event in self.events() if "documentKey" in event}


# --- the steps -----------------------------------------------------------------------------


def build(engine: Engine, directory: Path) -> None:
    """Builds the base and the image, and checks what the image must and must not contain."""
    root = directory / "base"
    say(f"a stand-in for {BASE}: {base_image.make(root)}")
    engine.import_tree(root, BASE)
    shutil.rmtree(root)
    engine.docker("build", "--network", "host", "--tag", IMAGE, str(ROOT), seconds=900)
    added = _size(engine, IMAGE) - _size(engine, BASE)
    require_that(added < LARGEST_LIVE, "the live image is too large", added)
    found = engine.inspect(IMAGE)["Config"]
    require_that(found["User"] == "10001:10001", "the user is fixed", found["User"])
    require_that(found["StopSignal"] == "SIGTERM", "the signal is named", found["StopSignal"])
    require_that(found["Entrypoint"] == ["tailrace"], "process 1 is ours", found["Entrypoint"])
    require_that("org.opencontainers.image.licenses" in found["Labels"], "labels", found["Labels"])
    unwanted = "for name in pip pip3 gcc cc make java uv; do command -v $name && exit 1; done; true"
    engine.docker("run", "--rm", "--network", "host", "--entrypoint", "sh", IMAGE, "-c", unwanted)
    say(f"built, {added / 1e6:.0f} MB above its base, with user, signal and labels, without tools")


def build_more(engine: Engine, target: str) -> None:
    """Builds another target, and checks that what it adds can be used."""
    image = f"tailrace:check-{target}"
    engine.docker(
        *("build", "--network", "host", "--target", target, "--tag", image, str(ROOT)), seconds=3600
    )
    use = {
        "destinations": (
            "import psycopg, confluent_kafka, nats, redis, aiohttp, tailrace.app;"
            "import tailrace.telemetry.sdk"
        ),
        "lake": (
            "import obstore, pyarrow, tailrace.app, tailrace.destinations.parquet.lake_handler;"
            "import tailrace.telemetry.sdk"
        ),
        "pipeline": (
            "import pyspark.sql; s = pyspark.sql.SparkSession.builder.master('local[1]')"
            ".config('spark.ui.enabled', 'false').getOrCreate();"
            "assert s.range(10).count() == 10"
        ),
    }[target]
    engine.docker(
        *("run", "--rm", "--read-only", "--tmpfs", "/tmp:exec", "--network", "host"),
        *("--cap-drop", "ALL", "--env", "SPARK_LOCAL_IP=127.0.0.1", "--entrypoint", "python"),
        *(image, "-c", use),
    )
    say(f"{target}: {(_size(engine, image) - _size(engine, IMAGE)) / 1e6:.0f} MB more than live")


def follow(service: Service, server: ReplicaSet) -> None:
    """Starts under the restrictions of a careful operator, is healthy, and is scraped."""
    service.start()
    until(lambda: service.state["Health"]["Status"] == "healthy", "the health check", 90)
    until(lambda: service.get("/readyz"), "readiness", 60)
    with server.client() as client:
        client["shop"]["orders"].insert_many({"_id": -number} for number in range(1, 501))
    until(lambda: len(service.ids()) == 500, "500 events on the volume", 60)
    sample = 'tailrace_events_handled_total{handler="events",outcome="ok",scope="shop"} 500.0'
    until(lambda: sample in service.get("/metrics").splitlines(), f"/metrics with {sample}", 60)
    say("runs read-only, without capabilities, in 256 MB; healthy, ready and scraped")


def survive(service: Service, server: ReplicaSet) -> None:
    """SIGKILL under load: the engine restarts the container, and no event is missing."""
    with server.client() as client:
        orders = client["shop"]["orders"]
        with Load(lambda numbers: orders.insert_many([{"_id": n} for n in numbers])) as load:
            until(service.saved, "a checkpoint", 60)
            run(["kill", "-KILL", str(service.state["Pid"])])
            until(lambda: _restarted(service), "the engine's restart", 60)
    until(lambda: service.ids() >= set(range(load.written)), "every write", 60)
    extra = len(service.events()) - len(service.ids())
    say(f"killed under load: {load.written} writes, none lost, {extra} came twice")


def drain(service: Service, server: ReplicaSet) -> None:
    """A stop drains; the next start repeats nothing."""
    service.engine.docker("stop", "--time", "30", service.name)
    require_that(service.state["ExitCode"] == 0, "drained with exit code 0", service.state)
    last = json.loads(service.engine.logs(service.name).splitlines()[-1])
    require_that(last["event"] == "service.stopped", "its last line", last)
    before = len(service.events())
    with server.client() as client:
        client["shop"]["orders"].insert_one({"_id": -1000})
    service.engine.docker("start", service.name)
    until(lambda: -1000 in service.ids(), "the event of the pause", 60)
    require_that(len(service.events()) == before + 1, "nothing is repeated", len(service.events()))
    service.engine.docker("stop", service.name)
    require_that(service.state["ExitCode"] == 0, "drained with exit code 0", service.state)
    say("stopped with exit code 0, repeated nothing")


def refuse(service: Service) -> None:
    """Bad input: one JSON line, and the documented exit code."""
    nobody = f"mongodb://127.0.0.1:{free_port()}/?serverSelectionTimeoutMS=500"
    for environ, code, message in (
        ({"MONGODB_URI": ""}, 2, "variable MONGODB_URI is not set"),
        ({"MONGODB_URI": nobody}, 1, "cannot be reached"),
        ({"TAILRACE_CONFIG": "/dev/zero"}, 2, "is larger than"),
    ):
        ended, lines = service.attempt(environ)
        failures = [line for line in lines if line["level"] != "info"]
        require_that(ended == code, f"exit code {code} for {environ}", (ended, lines))
        require_that(len(failures) == 1, f"one line for {environ}", lines)
        require_that(message in failures[0]["reason"], f"it says {message!r}", failures)
    say("refused bad input in one JSON line, with the contract's exit code")


def _restarted(service: Service) -> bool:
    found = service.engine.inspect(service.name)
    return bool(found["RestartCount"] == 1 and found["State"]["Running"])


def _size(engine: Engine, image: str) -> int:
    return int(engine.inspect(image)["Size"])


def check(targets: Sequence[str]) -> None:
    """All steps for the live image, and builds of the other targets.

    Raises :class:`CheckFailed`, or ``AssertionError`` if a wait times out.
    """
    installed = install(dockerd="docker.io", mmdebstrap="mmdebstrap")
    say(f"installed from Debian: {', '.join(installed) or 'nothing, all is here'}")
    with tempfile.TemporaryDirectory(prefix="tailrace-image-") as name:
        directory = Path(name)
        with Engine(directory / "engine") as engine:
            build(engine, directory)
            server = ReplicaSet(directory / "server")
            try:
                service = Service(engine, server)
                follow(service, server)
                survive(service, server)
                drain(service, server)
                refuse(service)
            finally:
                server.stop()
            for target in targets:
                build_more(engine, target)
    say("all held; containers, mounts, processes and files are gone")


def _too_long(*_: object) -> None:
    raise CheckFailed("it takes too long")


def main() -> int:
    """Exit code 0, 1 or 2, as described above."""
    if why_not := why_no_engine():
        print(f"image-check: {why_not}", file=sys.stderr)
        return 2
    targets = sys.argv[1:] or TARGETS
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the clean-up runs
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
