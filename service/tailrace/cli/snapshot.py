"""``tailrace snapshot``: sends requests to the running daemon on this machine.

Exit codes: 0 done or begun, 1 refused or no daemon, 2 wrong usage or a wrong token.
"""

import argparse
import json
import sys
import time
from typing import Any
from urllib.parse import quote, urlencode

from tailrace.cli import snapshot_text
from tailrace.cli.arguments import add_config, read_settings, refuse
from tailrace.config.settings import HttpSettings
from tailrace.observe.health_check import request
from tailrace.snapshot.filter import canonical

_LOOK_SECONDS = 1.0
_PLAN_SECONDS = 10.0
"""How long ``start`` waits until the daemon has found the collections."""

Snapshot = dict[str, Any]


class _Refused(Exception):
    """The daemon refused the request, or there is no daemon; with the exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    start = verbs.add_parser("start", help="deliver the documents that exist now")
    start.add_argument(
        "--collection",
        action="append",
        default=[],
        metavar="NAME",
        help="only this collection; may be repeated",
    )
    start.add_argument("--filter", default="", metavar="JSON", help="only documents that match")
    status = verbs.add_parser("status", help="show the progress")
    status.add_argument(
        "--watch",
        action="store_true",
        help="show it until the snapshot ends; exit code 1 if it was cancelled",
    )
    verbs.add_parser("pause", help="stop reading until it is resumed")
    verbs.add_parser("resume", help="continue a paused snapshot")
    verbs.add_parser("cancel", help="end it; rows that were delivered stay")
    for verb in verbs.choices.values():
        verb.add_argument("scope", help="the scope's name")
        add_config(verb)


def run(options: argparse.Namespace) -> int:
    """Runs the verb, and prints the result or one line that says why it failed."""
    settings = read_settings(options)
    names = [each.name for each in settings.scopes]
    if options.scope not in names:
        told = f"is not in {options.config}, which has: {', '.join(names)}"
        refuse(f"scope {options.scope!r}", told)
    daemon = _Daemon(settings.http, options.config, options.scope)
    try:
        match options.verb:
            case "status":
                return _watch(daemon) if options.watch else _show(daemon)
            case "start":
                return _start(daemon, options.collection, options.filter)
        print(daemon.order(options.verb))
    except _Refused as error:
        print(f"tailrace: {error}", file=sys.stderr)
        return error.code
    return 0


class _Daemon:
    """The daemon on this machine, and one of its scopes."""

    def __init__(self, http: HttpSettings, config: str, scope: str) -> None:
        self.scope = scope
        self._http = http
        self._config = config

    def snapshot(self) -> Snapshot | None:
        """The scope's last snapshot, as in ``/status``."""
        scopes = json.loads(self._ask("/status"))["scopes"]
        if self.scope not in scopes:
            raise _Refused(f"the daemon does not follow scope {self.scope!r}, or not yet")
        if scopes[self.scope]["state"] == "standby":
            told = (
                f"scope {self.scope!r} is standby here: {scopes[self.scope]['reason']}: ask there"
            )
            raise _Refused(told)
        found: Snapshot | None = scopes[self.scope]["snapshot"]
        return found

    def order(self, action: str, **more: Any) -> str:
        """Sends an action; returns the answer if the daemon accepts it."""
        query = urlencode({"action": action, **more}, doseq=True)
        return self._ask(f"/scopes/{quote(self.scope, safe='')}/snapshot?{query}", "POST")

    def _ask(self, path: str, method: str = "GET") -> str:
        http, token = self._http, self._http.token.get_secret_value() if self._http.token else ""
        status, answer = request(http.host, http.port, path, method=method, token=token)
        match status:
            case 200 | 202:
                return answer
            case 0:
                raise _Refused(f"{answer}. Does the daemon of {self._config} run on this machine?")
            case 401:
                told = f"its token is not the http.token of {self._config}"
                raise _Refused(f"the daemon refuses this: {told}", 2)
            case 403:
                raise _Refused(f"the daemon refuses this: it {answer}", 2)
        raise _Refused(answer, 2 if status in (400, 404) else 1)


def _show(daemon: _Daemon) -> int:
    for line in snapshot_text.lines(daemon.snapshot()):
        print(line)
    return 0


def _watch(daemon: _Daemon) -> int:
    display = snapshot_text.SnapshotDisplay(sys.stdout)
    while True:
        snapshot = daemon.snapshot()
        over = snapshot is None or snapshot["state"] in ("done", "cancelled")
        display.show(snapshot, last=over)
        if over:
            return 1 if snapshot is not None and snapshot["state"] == "cancelled" else 0
        time.sleep(_LOOK_SECONDS)


def _start(daemon: _Daemon, collections: list[str], matching: str) -> int:
    """Waits until the daemon has found the collections and the server has accepted the filter."""
    for name in collections:
        try:
            name.encode()
        except UnicodeEncodeError:
            refuse("--collection", f"{name!a} is not UTF-8")
    try:
        matching = canonical(matching)
    except ValueError as error:
        refuse("--filter", str(error))
    before = daemon.snapshot()
    accepted = daemon.order("start", collection=collections, filter=matching)
    deadline = time.monotonic() + _PLAN_SECONDS
    while time.monotonic() < deadline:
        snapshot = daemon.snapshot()
        if snapshot is not None and snapshot["id"] != (before or {}).get("id"):
            if snapshot["state"] == "cancelled" and snapshot["reason"]:
                raise _Refused(snapshot["reason"])
            if snapshot["state"] != "planned":
                for line in snapshot_text.lines(snapshot):
                    print(line)
                return 0
        time.sleep(_LOOK_SECONDS / 10)
    print(f"{accepted}, and begins when the scope reads")
    return 0
