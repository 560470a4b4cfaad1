"""The run: a server, the service, a workload, a restart in the middle; then the proof, and tables.

The nesting of ``async with`` is the order of the end, read inside out: the workload, the service,
the client, the server, the directory.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError
from rich.console import Console

from tailrace.demo.account import Account
from tailrace.demo.directory import Layout, prepared
from tailrace.demo.display import Display
from tailrace.demo.event_file import EventFile
from tailrace.demo.picture import LagSample, draw
from tailrace.demo.service_process import ServiceProcess
from tailrace.demo.source import opened_source
from tailrace.demo.tables import changes
from tailrace.demo.tabulation import tabulate
from tailrace.demo.verification import compare, replay
from tailrace.demo.workload import Shop, read_source, run_workload, write_marker
from tailrace.errors import ConfigurationError, TailraceError, describe

RESTART_AFTER = 0.4
"""Before the rename and the drop in the middle, which then fall into the time of the restart."""

STALLED_SECONDS = 60.0
"""Without one more event for so long, the run has failed."""

_LAST_MARKER = "the last change"
_LAG = 'tailrace_lag_seconds{scope="shop",stage="handled"}'
_RESUMES = "tailrace_stream_resumes_total{"


async def demonstrate(events: int, directory: Path, uri: str | None = None) -> int:
    """Runs the demo; returns 0 if events and tables give exactly the source, and 1 if not.

    ``uri`` leads to a replica set of the user's own; without it there is an embedded server.

    Raises :class:`ConfigurationError` where it cannot begin: there is no mongod, the directory is
    somebody's, or the server at ``uri`` will not do. SIGTERM (1) and Ctrl-C (130) end every process
    in order.
    """
    display = Display(Console(), events)
    failures: list[BaseException] = []
    code, told = 1, _Told()
    with prepared(directory) as layout:
        # Errors leave task groups wrapped: this is the one place that looks inside.
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(told.cancel, tasks, display, name="signals")
                code = await _Demonstration(layout, display, events, uri).run()
                tasks.cancel_scope.cancel()
        except* (TailraceError, PyMongoError) as group:
            failures.extend(_leaves(group))
        for failure in failures:
            if isinstance(failure, ConfigurationError):
                raise failure
        for failure in failures:
            display.say(f"The demo failed: {_message(failure)}")
    return told.code or (1 if failures else code)


@dataclass(slots=True)
class _Demonstration:
    """One run, and what is counted on the way."""

    layout: Layout
    display: Display
    events: int
    uri: str | None
    written: int = 0
    past_resumes: int = 0
    resumes: int = 0
    lag_seconds: float | None = None
    lags: list[LagSample] = field(default_factory=list)
    down: tuple[float, float] | None = None
    restart_now: anyio.Event = field(default_factory=anyio.Event)
    restarted: anyio.Event = field(default_factory=anyio.Event)

    async def run(self) -> int:
        layout = self.layout
        async with (
            opened_source(self.uri, layout, self.display) as source,
            AsyncMongoClient[dict[str, Any]](source.uri) as client,
            ServiceProcess(layout, source) as service,
        ):
            shop = client[source.database]
            self.display.say(f"The service is ready: http://127.0.0.1:{service.port}/status")
            with self.display.live():
                await self._write_and_follow(shop, service)
            await service.stop()
            documents = await read_source(shop)
        whole = self._verify(documents, service.restarts)
        tabulated = await tabulate(self.display, layout, source.database, documents)
        if tabulated:
            draw(layout.picture, changes(layout.tables), self.lags, self.down)
            self.display.say(f"A picture of it: {layout.picture}")
        return 0 if whole and tabulated else 1

    async def _write_and_follow(self, shop: Shop, service: ServiceProcess) -> None:
        file = EventFile(self.layout.events)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._restart, service, name="restart")
            tasks.start_soon(self._write, shop, name="workload")
            await self._follow(file, service)

    async def _write(self, shop: Shop) -> None:
        await run_workload(shop, events=self.events, progress=self._note_written)
        await self.restarted.wait()
        await write_marker(shop, _LAST_MARKER)
        self.written += 1

    def _note_written(self, written: int) -> None:
        self.written = written
        if written >= self.events * RESTART_AFTER:
            self.restart_now.set()

    async def _restart(self, service: ServiceProcess) -> None:
        await self.restart_now.wait()
        await self._look_at_metrics(service)  # counters begin anew
        self.past_resumes, self.resumes = self.resumes, 0
        self.display.say("The service is restarted, while the workload goes on")
        began = time.time()
        await service.restart()
        self.down = (began, time.time())
        self.restarted.set()

    async def _follow(self, file: EventFile, service: ServiceProcess) -> None:
        """Until the last change is in the file; bounded by the time without progress."""
        seen, progress_at = -1, anyio.current_time()
        while not file.markers:
            service.check()
            delivered = file.read_on()
            await self._look_at_metrics(service)
            self.display.update(self.written, delivered, self.lag_seconds)
            if delivered > seen:
                seen, progress_at = delivered, anyio.current_time()
            elif anyio.current_time() - progress_at > STALLED_SECONDS:
                raise TailraceError(
                    f"no event came for {STALLED_SECONDS:.0f} s: {self.written} were written, "
                    f"{delivered} delivered; see {self.layout.service_log}"
                )
            await anyio.sleep(0.1)

    async def _look_at_metrics(self, service: ServiceProcess) -> None:
        metrics = await service.metrics()
        self.lags.append(LagSample(time.time(), metrics.get(_LAG)))
        if metrics:
            self.lag_seconds = metrics.get(_LAG)
            of_each = (value for name, value in metrics.items() if name.startswith(_RESUMES))
            self.resumes = int(sum(of_each))

    def _verify(self, source: dict[str, list[bytes]], restarts: int) -> bool:
        with self.layout.events.open(encoding="utf-8", newline="\n") as lines:
            played = replay(lines)
        differences = [*played.unfounded, *compare(played.collections, source)]
        account = Account(
            written=self.written,
            delivered=played.operations.total() + played.duplicates,
            operations=dict(played.operations),
            duplicates=played.duplicates,
            restarts=restarts,
            resumes=self.past_resumes + self.resumes,
            last_lag_seconds=self.lag_seconds,
            documents=sum(map(len, source.values())),
        )
        self.display.account(account, differences, self.layout)
        return not differences


class _Told:
    """Ends the demo by a signal; ``code`` is the exit code then.

    Ctrl-C too: Python's own answer cancels the main task once, and whoever swallows that goes on.
    """

    def __init__(self) -> None:
        self.code = 0

    async def cancel(self, tasks: TaskGroup, display: Display) -> None:
        """Waits for the first signal, and cancels."""
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for number in signals:
                self.code = 130 if number is signal.SIGINT else 1
                display.say("Told to end: the service and the server are ended first")
                tasks.cancel_scope.cancel()
                return


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in _leaves(inner)]


def _message(error: BaseException) -> str:
    """Ours keep their lines: they may hold the end of a log."""
    return str(error) if isinstance(error, TailraceError) else describe(error)
