"""Runs commands of Tailrace for the demo, each as a process with a configuration file."""

import http.client
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from tailrace.demo.child_process import ChildProcess, child_process, failure_of, last_lines
from tailrace.demo.source import DemoSource
from tailrace.demo.workspace import Layout
from tailrace.durable_files import PRIVATE
from tailrace.errors import StartRefused, TailraceError

READY_SECONDS = 60.0
"""How long the service may take to get ready; two seconds if nothing else runs."""

STOP_SECONDS = 40.0
"""More than the service's own grace period, or a drain would be killed and look like a crash."""

VERIFY_SECONDS = 300.0
"""How long a verification may take; a second if nothing else runs."""

PIPELINE_SECONDS = 600.0
"""How long the pipeline may take; half a minute if nothing else runs."""

_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Turns off Java's second compiler, which is worthwhile only for runs of minutes."""

_CHECKOUT = Path(__file__).parents[3]
"""The root of the checkout, if the package is not installed from a wheel."""


@dataclass(frozen=True, slots=True)
class ServiceProgress:
    """``lag``: seconds behind the server, if known.

    ``all_handled``: no event is in flight, the snapshot is over, and no handler is behind on its
    own. A restart may deliver the snapshot's end again, after events that are newer.
    """

    lag: float | None
    all_handled: bool


@dataclass(frozen=True, slots=True)
class Service:
    child: ChildProcess
    port: int

    def check(self, when: str = "") -> None:
        """Raises :class:`StartRefused` if the service has ended."""
        code = self.child.process.returncode
        if code is not None:
            raise StartRefused(self.report(f"ended with code {code}{when}"))

    async def progress(self) -> ServiceProgress:
        """What ``/status`` says of the scope; nothing is known if the service does not answer.

        Raises :class:`StartRefused` if the scope is halted.
        """
        status, body = await self.get("/status")
        if status != 200:
            return ServiceProgress(lag=None, all_handled=False)
        scope = json.loads(body)["scopes"]["shop"]
        if scope["state"] == "halted":
            raise StartRefused(self.report(f"has halted its scope: {scope['reason']}"))
        snapshot_over = (scope["snapshot"] or {}).get("state") == "done"
        together = all(each["state"] == "attached" for each in scope["handlers"].values())
        return ServiceProgress(
            lag=scope["lag_seconds"].get("handled"),
            all_handled=snapshot_over and together and scope["in_flight"]["events"] == 0,
        )

    async def verification(self) -> Mapping[str, Any]:
        """What ``tailrace verify shop`` says when it is over; raises :class:`TailraceError`."""
        path = "/scopes/shop/verify"
        status, body = await self._ask("POST", path)
        if status not in (200, 202):
            raise TailraceError(self.report(f"does not verify: {body.strip()}"))
        with anyio.move_on_after(VERIFY_SECONDS):
            while True:
                status, body = await self.get(path)
                found = json.loads(body)["verification"] if status == 200 else None
                if found is not None and found["state"] not in ("running", "paused"):
                    verification: Mapping[str, Any] = found
                    return verification
                self.check()
                await anyio.sleep(0.1)
        message = f"has not verified within {VERIFY_SECONDS:.0f} s"
        raise TailraceError(self.report(message))

    async def get(self, path: str) -> tuple[int, str]:
        return await self._ask("GET", path)

    async def _ask(self, method: str, path: str) -> tuple[int, str]:
        return await anyio.to_thread.run_sync(
            _answer, self.port, method, path, abandon_on_cancel=True
        )

    def report(self, what: str) -> str:
        log = self.child.log
        return f"the service {what}; the end of {log}:\n{last_lines(log)}"


@asynccontextmanager
async def running_service(layout: Layout, source: DemoSource, port: int) -> AsyncIterator[Service]:
    """``tailrace run``: ready when the block begins, drained at its end.

    Raises :class:`StartRefused` if it does not start, :class:`TailraceError` if it does not drain.
    """
    environment = _environment(
        MONGODB_URI=source.uri,
        TAILRACE_DATABASE=source.database,
        TAILRACE_HTTP_HOST="127.0.0.1",
        TAILRACE_HTTP_PORT=str(port),
        TAILRACE_LOG_FORMAT="json",
        TAILRACE_SNAPSHOT="initial",
    )
    config = layout.config if layout.config.exists() else _shipped()
    async with child_process(
        _command(config, "run"),
        log=layout.log("service"),
        environment=environment,
        grace_seconds=STOP_SECONDS,
    ) as child:
        service = Service(child, port)
        with anyio.move_on_after(READY_SECONDS) as limit:
            while (await service.get("/readyz"))[0] != 200:
                service.check(" before it was ready")
                await anyio.sleep(0.1)
        if limit.cancelled_caught:
            raise StartRefused(service.report(f"was not ready within {READY_SECONDS:.0f} s"))
        yield service
        code = await child.stop()
        if code != 0:
            what = f"ended with code {code} when it was told to stop"
            raise TailraceError(service.report(what))


async def run_pipeline(layout: Layout) -> None:
    """Runs ``tailrace pipeline --once`` on the landed segments; raises :class:`TailraceError`."""
    log = layout.log("pipeline")
    failure = await failure_of(
        _command(_shipped(), "pipeline", "--once"),
        seconds=PIPELINE_SECONDS,
        log=log,
        environment=_environment(JDK_JAVA_OPTIONS=_QUICK_START),
    )
    if failure:
        raise TailraceError(f"the pipeline {failure}; the end of {log}:\n{last_lines(log)}")


def write_configuration(layout: Layout, name: str, handler: Mapping[str, Any]) -> None:
    """Writes the configuration of a service with this handler beside the file of events."""
    scope = {"name": "shop", "database": "${TAILRACE_DATABASE}", "full_document": "lookup"}
    configuration = {
        "mongodb": {"uri": "${MONGODB_URI}"},
        "store": {"path": "data/tailrace.db"},
        "http": {"host": "${TAILRACE_HTTP_HOST}", "port": "${TAILRACE_HTTP_PORT}"},
        "scopes": [{**scope, "snapshot": "${TAILRACE_SNAPSHOT}"}],
        "handlers": {
            "audit": {"type": "jsonl", "path": "data/events.jsonl", "json": "canonical"},
            name: dict(handler),
        },
        "routes": [{"scope": "shop", "handlers": ["audit", name]}],
    }
    with os.fdopen(os.open(layout.config, os.O_WRONLY | os.O_CREAT, PRIVATE), "w") as file:
        json.dump(configuration, file, indent=2)  # JSON is YAML


def _shipped() -> Path:
    """The shipped configuration, which is beside this module or in the checkout."""
    shipped = Path(__file__).with_name("config.yaml")
    return shipped if shipped.is_file() else _CHECKOUT / "config.yaml"


def _command(config: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "tailrace", *arguments, "--config", str(config)]


def _environment(**variables: str) -> dict[str, str]:
    """The environment of a command, in which Python finds this package."""
    found = {**os.environ, **variables}
    if (_CHECKOUT / "pyproject.toml").exists():
        paths = [str(_CHECKOUT / "service"), found.get("PYTHONPATH", "")]
        found["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return found


def _answer(port: int, method: str, path: str) -> tuple[int, str]:
    """Status and body; status 0 if nothing answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with closing(connection), suppress(OSError, http.client.HTTPException):
        connection.request(method, path, headers={"Tailrace-Change": "1"})
        response = connection.getresponse()
        return response.status, response.read().decode()
    return 0, ""
