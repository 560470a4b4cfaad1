"""``tailrace scopes replay``: hands a span of time to a handler of the daemon, or writes a file.

The daemon is asked for its handlers, which are open there. A file is written by the command itself,
with a stream of its own.
"""

import argparse
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import structlog

from tailrace.cli.arguments import client_of, refuse, result_text, scope_of
from tailrace.cli.scope_server import scope_server
from tailrace.cli.waiting_bar import WaitingBar, waiting_bar
from tailrace.config.settings import Settings
from tailrace.control.actions.replay import ReplayBody
from tailrace.control.bodies import read_body
from tailrace.control.client import Client, NoDaemon
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
from tailrace.stores.memory import MemoryCheckpoints, MemoryDeadLetters

_LOOK_SECONDS = 0.2


def add(replay: Any) -> None:
    """Adds the arguments of the verb."""
    replay.add_argument("--from", dest="since", metavar="TIME", help="ISO 8601 with offset")
    replay.add_argument("--to", metavar="TIME", help="ISO 8601 with offset; default: now")
    replay.add_argument("--handler", help="the handler that gets the changes")
    replay.add_argument(
        "--to-file",
        metavar="FILE",
        help="write the changes to this new file instead, one a line, as the type jsonl does",
    )
    replay.add_argument(
        "--canonical", action="store_true", help="in the file, keep every BSON type"
    )
    replay.add_argument(
        "--collection", action="append", default=[], metavar="NAME", help="only these; repeatable"
    )
    replay.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="JSON",
        help="only documents with this _id, as Extended JSON; repeatable",
    )
    replay.add_argument("--dry-run", action="store_true", help="say what would be replayed")
    replay.add_argument("--cancel", action="store_true", help="end the replay that is running")


async def answer(options: argparse.Namespace, settings: Settings) -> str:
    """Replays; returns what was done."""
    if options.to_file is not None and (options.handler is not None or options.cancel):
        refuse("--to-file", "stands in place of --handler, and is no replay that --cancel ends")
    if options.canonical and options.to_file is None:
        refuse("--canonical", "is the form of a file: give --to-file, too")
    given = {"from": options.since, "to": options.to, "handler": options.handler}
    given |= {"collections": options.collection, "keys": options.key, "dry_run": options.dry_run}
    body = read_body(ReplayBody, json.dumps(given | {"cancel": options.cancel}).encode(), "")
    with waiting_bar("replaying", 60) as progress:
        if options.to_file is not None:
            return result_text(options, await _into_file(body, settings, options, progress))
        client = client_of(settings, options.config)
        return result_text(options, await _through_daemon(body, client, options.scope, progress))


async def _through_daemon(
    body: ReplayBody, client: Client, scope: str, progress: WaitingBar
) -> Mapping[str, Any]:
    """Asks for a replay, and waits for its end."""
    begun: Mapping[str, Any] = client.scope(scope, "replay", body.model_dump(by_alias=True))
    if body.dry_run or body.cancel:
        return begun
    path = f"/scopes/{quote(scope, safe='')}/replay?handler={quote(str(body.handler), safe='')}"
    while True:
        try:
            found = client.get(path)["replay"]
        except NoDaemon as error:
            message = "the replay goes on when the daemon runs again, and GET"
            raise ActionRefused(503, f"{message} {path} shows how far it is: {error}") from error
        if found is None:
            raise ActionRefused(
                409, f"scope {scope!r} was reset, and its replay with it: begin again"
            )
        if found["state"] != "running":
            break
        progress.what = f"replaying, {found['handled']:,} handed over"
        progress.what += f"; {found['reason']}" if found["reason"] else ""
        if found["at"] is not None:
            first, last, at = (
                datetime.fromisoformat(found[each]).timestamp() for each in ("from", "to", "at")
            )
            progress.share = (at - first) / max(last - first, 1)
        await anyio.sleep(_LOOK_SECONDS)
    ended = f"the replay is {found['state']}: {_count(found['handled'])} handed over"
    if found["state"] != "done":
        raise ActionRefused(409, f"{ended}; {found['reason']}".rstrip("; "))
    return {"message": f"scope {scope!r}: {ended}", **found}


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
    message = f"scope {scope.name!r}: {_count(count)} written to {path}: {span}"
    return {"message": message, "written": count, "file": str(path)}


def _runtime(settings: Settings, server: ServerPositions) -> Runtime:
    """What a replay without a daemon needs: it remembers nothing."""
    return Runtime(
        server.driver,
        MemoryCheckpoints(),
        MemoryDeadLetters(),
        ClusterIdentity("", ""),
        ByteBudget(settings.delivery.max_in_flight_bytes),
        Metrics(state.value for state in WatcherState),
    )


def _count(changes: int) -> str:
    return "1 change was" if changes == 1 else f"{changes} changes were"


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
