"""``tailrace snapshot``: sends requests to the running daemon on this machine.

Exit codes: 0 done or begun, 1 refused or no daemon, 2 wrong usage or a wrong token.
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tailrace.cli import snapshot_text
from tailrace.cli.action_command import add_options
from tailrace.cli.arguments import (
    add_config,
    add_json,
    client_of,
    refuse,
    require_scope,
    result_text,
)
from tailrace.cli.waiting_bar import waiting_bar
from tailrace.config.served import load_served
from tailrace.control.actions.snapshot import SnapshotBody
from tailrace.control.client import DaemonClient
from tailrace.control.outcome import ActionRefused, elsewhere

_LOOK_SECONDS = 1.0
_PLAN_SECONDS = 10.0
"""How long ``start`` waits until the daemon has found the collections."""

_OVER = ("done", "cancelled")
_UNKNOWN = ("starting", "backing_off", "waiting", "stopped")
"""The states in which a scope, as after a reload, may not know its snapshot yet."""

Snapshot = dict[str, Any]


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    start = verbs.add_parser("start", help="deliver the documents that exist now")
    add_options(start, SnapshotBody, ("handler", "action"))
    status = verbs.add_parser("status", help="show the progress")
    status.add_argument(
        "--watch",
        action="store_true",
        help="show it until the snapshot ends; exit code 1 if it was cancelled",
    )
    status.add_argument("--json", action="store_true", help="print it as JSON, as in /status")
    add_json(start)
    verbs.add_parser("pause", help="stop reading until it is resumed")
    verbs.add_parser("resume", help="continue a paused snapshot")
    verbs.add_parser("cancel", help="end it; rows that were delivered stay")
    for name in ("pause", "resume", "cancel"):
        add_json(verbs.choices[name])
    for verb in verbs.choices.values():
        verb.add_argument("scope", help="the scope's name")
        add_options(verb, SnapshotBody, ("action", "collections", "filter"))
        add_config(verb)


def run(options: argparse.Namespace) -> int:
    """Runs the verb, and prints the result or one line that says why it failed."""
    served = load_served(options.config)
    require_scope(options.scope, options.handler, served.handlers, options.config)
    daemon = _Daemon(client_of(served, options.config), options.scope, options.handler)
    match options.verb:
        case "status":
            if options.json:
                print(json.dumps(daemon.snapshot(), indent=2))
                return 0
            return _watch(daemon) if options.watch else _show(daemon)
        case "start":
            with waiting_bar("waiting for the daemon", _PLAN_SECONDS):
                text = _start(daemon, options)
            print(text, end="")
            return 0
    print(result_text(options, daemon.request(options.verb)), end="")
    return 0


@dataclass(frozen=True, slots=True)
class _Daemon:
    """The daemon on this machine, and one of its scopes, or a handler of that."""

    client: DaemonClient
    scope: str
    handler: str | None

    def snapshot(self) -> Snapshot | None:
        """The last snapshot of the scope, or of the handler, as in ``/status``."""
        return self.look()[1]

    def look(self) -> tuple[str, Snapshot | None]:
        """The state of the scope, and the last snapshot as it is known in that state."""
        scope = self.client.get("/status")["scopes"].get(self.scope)
        if scope is None:
            why = f"the daemon does not follow scope {self.scope!r}, or not yet"
            raise ActionRefused(409, why)
        state: str = scope["state"]
        if state == "standby":
            raise elsewhere(self.scope, (scope["lease"] or {}).get("owner"), scope["reason"] or "")
        of_scope: Snapshot | None = scope["snapshot"]
        if self.handler is None:
            return state, of_scope
        own: Snapshot | None = scope["handlers"].get(self.handler, {}).get("snapshot")
        same = own is not None and of_scope is not None and own["id"] == of_scope["id"]
        return state, of_scope if same else own

    def request(self, action: str, **more: Any) -> Snapshot:
        """Sends an action; returns the answer if the daemon accepts it."""
        body = {"action": action, "handler": self.handler, **more}
        done: Snapshot = self.client.act(f"/scopes/{quote(self.scope, safe='')}/snapshot", body)
        return done


def _show(daemon: _Daemon) -> int:
    for line in snapshot_text.lines(daemon.snapshot()):
        print(line)
    return 0


def _watch(daemon: _Daemon) -> int:
    display = snapshot_text.SnapshotDisplay(sys.stdout)
    while True:
        state, snapshot = daemon.look()
        over = snapshot["state"] in _OVER if snapshot is not None else state not in _UNKNOWN
        if over or snapshot is not None:
            display.show(snapshot, last=over)
        if over:
            return 1 if snapshot is not None and snapshot["state"] == "cancelled" else 0
        time.sleep(_LOOK_SECONDS)


def _start(daemon: _Daemon, options: argparse.Namespace) -> str:
    """Waits until the daemon has found the collections and the server has accepted the filter."""
    collections: list[str] = options.collections
    for name in collections:
        try:
            name.encode()
        except UnicodeEncodeError:
            refuse("--collection", f"{name!a} is not UTF-8")
    from tailrace.snapshot.filter import canonical  # here: a filter needs BSON

    try:
        matching = canonical(options.filter)
    except ValueError as error:
        refuse("--filter", str(error))
    before = daemon.snapshot()
    accepted = daemon.request("start", collections=collections, filter=matching)
    deadline = time.monotonic() + _PLAN_SECONDS
    while time.monotonic() < deadline:
        snapshot = daemon.snapshot()
        if snapshot is not None and snapshot["id"] != (before or {}).get("id"):
            if snapshot["state"] == "cancelled" and snapshot["reason"]:
                raise ActionRefused(409, snapshot["reason"])
            if snapshot["state"] != "planned":
                shown = "".join(f"{line}\n" for line in snapshot_text.lines(snapshot))
                return json.dumps(snapshot, indent=2) + "\n" if options.json else shown
        time.sleep(_LOOK_SECONDS / 10)
    later = f"{accepted['message']}, and begins when the scope reads"
    return result_text(options, accepted | {"message": later})
