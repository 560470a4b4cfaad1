"""``tailrace scopes replay --to-file``: writes a span of time, with a stream of its own."""

import argparse
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import structlog

from tailrace.cli.arguments import read_settings, refuse, scope_of
from tailrace.cli.scope_replay import count as changes_text
from tailrace.cli.scope_server import scope_server
from tailrace.cli.waiting_bar import WaitingBar
from tailrace.config.settings import Settings
from tailrace.control.actions.replay import ReplayBody
from tailrace.control.outcome import ActionRefused
from tailrace.control.replays import find_span, span_text
from tailrace.control.server_positions import ServerPositions
from tailrace.durable_files import PRIVATE, sync_directory, write_all
from tailrace.engine import (
    ByteBudget,
    Handler,
    PerBatch,
    Routed,
    RunIdentity,
    Runtime,
    ScopePlan,
    Watcher,
    WatcherState,
)
from tailrace.engine.replay import replay_alone
from tailrace.errors import ScopeHalted, advice
from tailrace.event import ChangeEvent
from tailrace.event.json_lines import json_lines
from tailrace.model.cluster import ClusterIdentity
from tailrace.model.failure_policy import Backoff, FailurePolicy
from tailrace.observe.metrics import Metrics
from tailrace.stores.memory import MemoryCheckpoints, MemoryDeadLetters, MemoryDesiredStates


def write(body: ReplayBody, options: argparse.Namespace, progress: WaitingBar) -> Mapping[str, Any]:
    """Writes the changes that are meant; returns what was done."""
    return anyio.run(_into_file, body, read_settings(options), options, progress)


async def _into_file(
    body: ReplayBody, settings: Settings, options: argparse.Namespace, progress: WaitingBar
) -> Mapping[str, Any]:
    """Writes the changes that the scope reads, whatever its routes are."""
    path, scope = Path(options.to_file), scope_of(options.scope, settings, options.config)
    if body.since is None:
        refuse("--from", "is missing: give the time from which changes are meant")
    count, failure = 0, None
    async with scope_server(settings, scope) as server:
        request = await find_span(server, body.since, body.to, body.collections, body.keys)
        span = span_text(request)
        if body.dry_run:
            meant = f"scope {scope.name!r}: {span} would be written to {path}"
            return {"message": f"{meant}. Dry run: nothing was written", "dry_run": True}
        with _new_file(path) as append:

            async def write(events: Sequence[ChangeEvent], _: RunIdentity) -> None:
                nonlocal count, failure
                try:
                    for lines in json_lines([e.raw for e in events], canonical=options.canonical):
                        append(lines)
                except OSError as error:
                    failure = error
                    raise
                count += len(events)
                progress.what = f"replaying, {count:,} written"
                if (at := events[-1].cluster_time) is not None:
                    whole = max(request.until.time - request.since.time, 1)
                    progress.share = (at.time - request.since.time) / whole

            # No log: the command says itself how it ends.
            structlog.configure(
                wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL)
            )
            once = FailurePolicy(attempts=1, halt=True)
            to = Routed(Handler(str(path), PerBatch(write), failure=once))
            plan = ScopePlan(server.scope, server.options, [to], Backoff(0.5, 10))
            try:
                await replay_alone(Watcher(plan, _runtime(settings, server)).replays, to, request)
            except ScopeHalted as error:
                raise failure or error from error
    message = f"scope {scope.name!r}: {changes_text(count)} written to {path}: {span}"
    return {"message": message, "written": count, "file": str(path)}


def _runtime(settings: Settings, server: ServerPositions) -> Runtime:
    """What a replay without a daemon needs: it remembers nothing."""
    return Runtime(
        server.driver,
        MemoryCheckpoints(),
        MemoryDeadLetters(),
        MemoryDesiredStates(),
        ClusterIdentity("", ""),
        ByteBudget(settings.delivery.max_in_flight_bytes),
        Metrics(state.value for state in WatcherState),
    )


@contextmanager
def _new_file(path: Path) -> Iterator[Callable[[bytes], None]]:
    """Yields what appends to the file, which is there only when all is written."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        if path.exists():
            refuse("--to-file", f"{path} is there already: choose another name, or remove it")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
        try:
            yield lambda lines: write_all(descriptor, lines)
            os.fsync(descriptor)
            os.link(part, path)  # refuses a name that is taken meanwhile
            sync_directory(path.parent)
        finally:
            os.close(descriptor)
            part.unlink(missing_ok=True)
    except OSError as error:
        failed = f"--to-file: {path} cannot be written: {error.strerror or error}"
        help_ = advice(error) or "choose a file in a directory that you may write"
        raise ActionRefused(503, f"{failed}: {help_}. Nothing is left of it") from error
