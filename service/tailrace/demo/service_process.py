"""The real service with its shipped configuration, as a process of its own."""

import http.client
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Self

import anyio
import anyio.to_thread
from prometheus_client.parser import text_string_to_metric_families

from tailrace.demo.child_process import CHECKOUT, ChildProcess, own_environment
from tailrace.demo.server import free_port
from tailrace.demo.source import Source
from tailrace.demo.workspace import Layout
from tailrace.errors import ConfigurationError, Problem, StartRefused, TailraceError

READY_SECONDS = 60.0
"""From start to a ready service; two seconds where nothing else runs."""

STOP_SECONDS = 40.0
"""More than the service's own grace: killed before it, a drain would look like a crash."""

_LAG = {"scope": "shop", "stage": "handled"}


def find_config() -> Path:
    """The shipped configuration: beside this module when installed, else the checkout's own."""
    candidates = [Path(__file__).with_name("config.yaml"), CHECKOUT / "config.yaml"]
    for path in candidates:
        if path.is_file():
            return path
    raise ConfigurationError(Problem("", f"config.yaml is missing: looked for {candidates}"))


class ServiceProcess:
    """``tailrace run``, ready from the start of the block to its end, through restarts."""

    def __init__(self, layout: Layout, source: Source) -> None:
        self.port = free_port()  # the same after a restart
        self.restarts = 0
        self._layout = layout
        self._environment = own_environment(
            MONGODB_URI=source.uri,
            TAILRACE_DATABASE=source.database,
            TAILRACE_HTTP_HOST="127.0.0.1",
            TAILRACE_HTTP_PORT=str(self.port),
            TAILRACE_LOG_FORMAT="json",
        )
        self._process = self._new_process()
        self._expected_down = False

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._process.__aexit__()

    async def restart(self) -> None:
        """Drains it, and starts it again: it goes on from its checkpoint."""
        await self.stop()
        self._process = self._new_process()
        await self._start()
        self.restarts += 1
        self._expected_down = False

    async def stop(self) -> None:
        """SIGTERM; raises :class:`TailraceError` unless it drained and ended with 0."""
        self._expected_down = True
        code = await self._process.stop()
        if code != 0:
            raise TailraceError(self._report(f"ended with code {code} when it was told to stop"))

    def check(self) -> None:
        """Raises :class:`TailraceError` if it ended by itself."""
        if self._process.exit_code is not None and not self._expected_down:
            raise TailraceError(self._report(f"ended with code {self._process.exit_code}"))

    async def lag(self) -> float | None:
        """How many seconds it lags behind the server; ``None`` while it does not answer."""
        status, body = await self._get("/metrics")
        families = text_string_to_metric_families(body if status == 200 else "")
        samples = (s for family in families for s in family.samples)
        found = (s.value for s in samples if s.name == "tailrace_lag_seconds" and s.labels == _LAG)
        return next(found, None)

    async def _start(self) -> None:
        await self._process.__aenter__()
        try:
            with anyio.fail_after(READY_SECONDS):
                while (await self._get("/readyz"))[0] != 200:
                    if self._process.exit_code is not None:
                        what = f"ended with code {self._process.exit_code} before it was ready"
                        raise StartRefused(self._report(what))
                    await anyio.sleep(0.1)
        except BaseException as error:
            await self._process.__aexit__()
            if isinstance(error, TimeoutError):
                what = f"was not ready within {READY_SECONDS:.0f} s"
                raise StartRefused(self._report(what)) from None
            raise

    async def _get(self, path: str) -> tuple[int, str]:
        return await anyio.to_thread.run_sync(_get, self.port, path, abandon_on_cancel=True)

    def _new_process(self) -> ChildProcess:
        return ChildProcess(
            [sys.executable, "-m", "tailrace", "run", "--config", find_config()],
            log=self._layout.log("service"),
            directory=self._layout.root,
            environment=self._environment,
            grace_seconds=STOP_SECONDS,
        )

    def _report(self, what: str) -> str:
        return f"the service {what}; the end of {self._process.log}:\n{self._process.last_lines()}"


def _get(port: int, path: str) -> tuple[int, str]:
    """Status and body; status 0 where nothing answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    with closing(connection), suppress(OSError, http.client.HTTPException):
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    return 0, ""
