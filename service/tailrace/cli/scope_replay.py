"""``tailrace scopes replay``: hands a span of time to a handler of the daemon, or writes a file.

The daemon is asked for its handlers, which are open there. A file is written by the command itself,
with a stream of its own.
"""

import argparse
import json
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from tailrace.cli.action_command import add_options, given_in
from tailrace.cli.arguments import add_json, client_of, refuse, require_scope, result_text
from tailrace.cli.waiting_bar import WaitingBar, waiting_bar
from tailrace.control.actions.replay import REPLAY, ReplayBody
from tailrace.control.bodies import read_body
from tailrace.control.client import DaemonClient, NoDaemon
from tailrace.control.outcome import ActionRefused

_LOOK_SECONDS = 0.2


def add_verb(replay: argparse.ArgumentParser) -> None:
    """Adds the arguments of the verb."""
    replay.description = REPLAY.summary
    replay.add_argument("scope", help="the scope's name")
    add_options(replay, ReplayBody)
    replay.add_argument(
        "--to-file",
        metavar="FILE",
        help="write the changes to this new file instead, one a line, as the type jsonl does",
    )
    replay.add_argument(
        "--canonical", action="store_true", help="in the file, keep every BSON type"
    )
    add_json(replay)


def run(options: argparse.Namespace) -> int:
    """Replays, and prints what was done."""
    from tailrace.config.served import load_served

    served = load_served(options.config)
    require_scope(options.scope, None, served.handlers, options.config)
    if options.to_file is not None and (options.handler is not None or options.cancel):
        refuse("--to-file", "cannot be combined with --handler or --cancel")
    if options.canonical and options.to_file is None:
        refuse("--canonical", "needs --to-file")
    parameters = given_in(options, ReplayBody)
    body = read_body(ReplayBody, json.dumps(parameters).encode(), "")
    with waiting_bar("replaying", 60) as progress:
        if options.to_file is not None:
            from tailrace.cli import replay_file

            done = replay_file.write(body, options, progress)
        else:
            client = client_of(served, options.config)
            done = _through_daemon(body, parameters, client, options.scope, progress)
    print(result_text(options, done), end="")
    return 0


def _through_daemon(
    body: ReplayBody,
    parameters: Mapping[str, Any],
    client: DaemonClient,
    scope: str,
    progress: WaitingBar,
) -> Mapping[str, Any]:
    """Asks for a replay, and waits for its end."""
    begun: Mapping[str, Any] = client.act(f"/scopes/{quote(scope, safe='')}/replay", parameters)
    if body.dry_run or body.cancel:
        return begun
    path = f"/scopes/{quote(scope, safe='')}/replay?handler={quote(str(body.handler), safe='')}"
    while True:
        try:
            replay = client.awaited(path, progress.tell)["replay"]
        except NoDaemon as error:
            message = "the replay goes on when the daemon runs again, and GET"
            raise ActionRefused(503, f"{message} {path} shows how far it is: {error}") from error
        if replay is None:
            raise ActionRefused(
                409, f"scope {scope!r} was reset, and its replay with it: begin again"
            )
        if replay["state"] != "running":
            break
        progress.what = f"replaying, {replay['handled']:,} handed over"
        progress.what += f"; {replay['reason']}" if replay["reason"] else ""
        if replay["at"] is not None:
            first, last, at = (
                datetime.fromisoformat(replay[name]).timestamp() for name in ("from", "to", "at")
            )
            progress.share = (at - first) / max(last - first, 1)
        time.sleep(_LOOK_SECONDS)
    ended = f"the replay is {replay['state']}: {count(replay['handled'])} handed over"
    if replay["state"] != "done":
        raise ActionRefused(409, f"{ended}; {replay['reason']}".rstrip("; "))
    return {"message": f"scope {scope!r}: {ended}", **replay}


def count(changes: int) -> str:
    """A number of changes, for people."""
    return "1 change was" if changes == 1 else f"{changes} changes were"
