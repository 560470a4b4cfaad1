"""Runs the demo: a server, the service, a workload and a restart; then verifies and shows tables.

With a destination, its server runs as well, and what is there is verified instead of tables. The
nesting of ``async with``, read inside out, is the shutdown order: the workload, the service, the
destination, the client, the server, the directory.
"""

import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError
from rich.console import Console
from rich.status import Status

from tailrace.demo import workload
from tailrace.demo.destinations import Target, opened_target
from tailrace.demo.display import Display
from tailrace.demo.processes import (
    Service,
    ServiceProgress,
    run_pipeline,
    running_service,
    write_configuration,
)
from tailrace.demo.programs import require_java
from tailrace.demo.server import free_port
from tailrace.demo.source import opened_source
from tailrace.demo.tables import compare_tables, show_tables
from tailrace.demo.verification import replay
from tailrace.demo.workspace import Layout, prepared
from tailrace.errors import ConfigurationError, TailraceError, describe

RESTART_AFTER = 0.4
"""The share of the events before the restart. The rename and the drop, which come in the middle,
then happen during the restart."""

STALLED_SECONDS = 60.0
"""The run fails if no event arrives for this long."""


async def demonstrate(
    events: int, directory: Path, uri: str | None = None, to: str | None = None
) -> int:
    """Runs the demo on an embedded server, or on the user's own replica set at ``uri``.

    ``to``: the type of a destination instead of tables. Returns 0 if the events and the tables, or
    the destination, equal the source, 1 if not; SIGTERM (1) and Ctrl-C (130) stop every process in
    order. Raises :class:`ConfigurationError` if it cannot begin: a program is missing, or the
    directory or the server at ``uri`` is unsuitable.
    """
    if to is None:
        require_java()
    display = Display(Console(), events)
    failures: list[BaseException] = []
    code = 1

    async def cancel_on_signal(tasks: TaskGroup) -> None:
        nonlocal code
        # Also SIGINT: Python's own handler cancels the main task only once, and a task may swallow
        # that.
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            number = await anext(aiter(signals))
            code = 130 if number is signal.SIGINT else 1
            display.say("Interrupted: the service and the server are stopped first")
            tasks.cancel_scope.cancel()

    with prepared(directory) as layout:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancel_on_signal, tasks, name="signals")
                code = await _Demonstration(layout, display, events, uri, to).run()
                tasks.cancel_scope.cancel()
        except* (TailraceError, PyMongoError) as group:
            failures.extend(_leaves(group))
        for failure in failures:
            if isinstance(failure, ConfigurationError):
                raise failure
            # Our own errors keep their lines: they may contain the end of a log.
            text = str(failure) if isinstance(failure, TailraceError) else describe(failure)
            display.say(f"The demo failed: {text}")
    return code


class EventFile:
    """The growing file of events: counts complete lines, and looks for the last events."""

    def __init__(self, path: Path) -> None:
        self.lines = 0
        self._awaited = [workload.LAST_CHANGE.encode(), b'"snapshotEnd"']
        self._path = path
        self._position = 0

    def read_on(self) -> int:
        """Reads the lines added since the last call; returns the number of all lines."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._position)
                added = file.read()
            whole = added[: added.rfind(b"\n") + 1]
            self._position += len(whole)
            self.lines += whole.count(b"\n")
            self._awaited = [each for each in self._awaited if each not in whole]
        return self.lines

    @property
    def complete(self) -> bool:
        """Whether the file has the last change and the end of the snapshot."""
        return not self._awaited


@dataclass(slots=True)
class _Demonstration:
    layout: Layout
    display: Display
    events: int
    uri: str | None
    to: str | None = None
    written: int = 0
    lag: float | None = None
    """The last known one, in seconds."""
    down_seconds: float = 0.0
    """How long the service's restart took."""
    restarted: anyio.Event = field(default_factory=anyio.Event)

    async def run(self) -> int:
        port, file = free_port(), EventFile(self.layout.events)
        enough = self.events * RESTART_AFTER
        async with (
            opened_source(self.uri, self.layout, self.display) as source,
            AsyncMongoClient[dict[str, Any]](source.uri) as client,
            self._opened_target(source.database) as target,
        ):
            shop = client[source.database]
            before = await workload.write_before(shop)
            self.display.say(f"{workload.BEFORE} documents are there before the service starts")
            async with anyio.create_task_group() as tasks:
                with self.display.status("The workload begins") as status:
                    async with running_service(self.layout, source, port) as service:
                        self.display.say(f"The service is ready: http://127.0.0.1:{port}/status")
                        tasks.start_soon(self._write, shop, before, name="workload")
                        await self._follow(service, file, status, lambda _: self.written >= enough)
                        self.display.say("The service is restarted, while the workload continues")
                        began = time.time()
                    async with running_service(self.layout, source, port) as service:
                        self.down_seconds = time.time() - began
                        self.restarted.set()
                        await self._follow(
                            # The lake lags behind the file, and a stop begins no further call.
                            service,
                            file,
                            status,
                            lambda progress: file.complete and progress.all_handled,
                        )
                        verification = await service.verification()
            documents = await workload.read_source(shop)
            differences = [] if target is None else await target.differences(documents)
        whole = self._verify(documents)
        whole &= self._show(verification)
        if target is None:
            equal = await self._tabulate(documents, source.database)
        else:
            equal = not differences
            count = sum(map(len, documents.values()))
            self.display.verdict(f"The contents of {target.location}", count, differences)
        return 0 if whole and equal else 1

    @asynccontextmanager
    async def _opened_target(self, database: str) -> AsyncIterator[Target | None]:
        """Runs the destination's server during the block, if the demo has one."""
        if self.to is None:
            yield None
            return
        self.layout.destination.mkdir()
        self.display.say(f"The server of {self.to} starts")
        async with opened_target(self.to, self.layout, database) as target:
            write_configuration(self.layout, self.to, target.handler)
            self.display.say(f"Changes go to {target.location}")
            yield target

    async def _write(self, shop: workload.Shop, before: workload.Writer) -> None:
        def note(written: int) -> None:
            self.written = written

        await workload.run(shop, self.events, note, before)
        await self.restarted.wait()
        await workload.write_last_change(shop)
        self.written += 1

    async def _follow(
        self,
        service: Service,
        events: EventFile,
        status: Status,
        done: Callable[[ServiceProgress], bool],
    ) -> None:
        """Shows the progress until ``done``; fails if there is no progress."""
        seen, progress_at = -1, anyio.current_time()
        progress = ServiceProgress(lag=None, all_handled=False)
        while not done(progress):
            service.check()
            delivered = events.read_on()
            progress = await service.progress()
            self.lag = self.lag if progress.lag is None else progress.lag
            self.display.update(status, self.written, delivered, progress.lag)
            if delivered > seen:
                seen, progress_at = delivered, anyio.current_time()
            elif anyio.current_time() - progress_at > STALLED_SECONDS:
                raise TailraceError(
                    f"no event came for {STALLED_SECONDS:.0f} s: {self.written} were written, "
                    f"{delivered} delivered; see {self.layout.log('service')}"
                )
            await anyio.sleep(0.1)

    def _verify(self, source: dict[str, list[bytes]]) -> bool:
        with self.layout.events.open(encoding="utf-8", newline="\n") as lines:
            played = replay(lines)
        differences = played.differences(source)
        by_operation = ", ".join(f"{name} {count}" for name, count in played.operations.items())
        delivered = played.operations.total() + played.duplicates
        self.display.figures(
            {
                "changes written": str(self.written),
                "events delivered": f"{delivered} ({by_operation})",
                "delivered again": str(played.duplicates),
                "service restarts": f"1, in {self.down_seconds:.1f} s",
                "last lag": "unknown" if self.lag is None else f"{self.lag:.2f} s",
                "events": str(self.layout.events),
                "logs": str(self.layout.root / "*.log"),
            }
        )
        self.display.verdict("The events", sum(map(len, source.values())), differences)
        return not differences

    def _show(self, verification: Mapping[str, Any]) -> bool:
        """Shows what the service itself says of its destinations; returns whether all is right."""
        names = ("different", "missing", "too_many")
        compared, found = verification["compared"], sum(verification[name] for name in names)
        who = " and ".join(verification["handlers"])
        line = f"tailrace verify shop: {compared} rows of {who} compared, {found} differ"
        done, reason = verification["state"] == "done", verification["reason"]
        self.display.say(line if done else f"{line}; it is {verification['state']}: {reason}")
        return done and not found

    async def _tabulate(self, source: dict[str, list[bytes]], database: str) -> bool:
        layout, display = self.layout, self.display
        display.say("The pipeline makes tables of the landed segments, in a process of its own")
        with display.status("Spark is running"):
            await run_pipeline(layout)
        shown = (f"{database}.{name}" for name in (workload.ORDERS, workload.ARCHIVED_CARTS))
        show_tables(display, layout.tables, *shown)
        differences = compare_tables(layout.tables, source)
        display.verdict("The tables", sum(map(len, source.values())), differences)
        display.say(f"  The tables are in {layout.tables}")
        return not differences


def _leaves(error: BaseException) -> list[BaseException]:
    """The errors inside a task group's exception group."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
