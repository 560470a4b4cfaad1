"""The real service with its shipped configuration, as a process of its own."""

from __future__ import annotations

import http.client
import re
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import anyio.to_thread

from tailrace.demo.child_process import CHECKOUT, ChildProcess, own_environment
from tailrace.demo.directory import Layout
from tailrace.demo.server import free_port
from tailrace.demo.source import Source
from tailrace.errors import ConfigurationError, Problem, StartRefused, TailraceError

READY_SECONDS = 60.0
"""From start to a ready service; two seconds where nothing else runs."""

STOP_SECONDS = 40.0
"""More than the service's own grace: killed before it, a drain would look like a crash."""

_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)", re.MULTILINE)


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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._process.__aexit__(kind, error, trace)

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

    async def metrics(self) -> dict[str, float]:
        """Its metrics now, keyed as they are written; none while it does not answer."""
        status, body = await self._get("/metrics")
        if status != 200:
            return {}
        return {
            f"{name}{{{labels}}}" if labels else name: float(value)
            for name, labels, value in _SAMPLE.findall(body)
        }

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
            await self._process.__aexit__(None, None, None)
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
    """Status and body; status 0 where nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    except (OSError, http.client.HTTPException):
        return 0, ""
    finally:
        connection.close()
