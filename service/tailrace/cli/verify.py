"""``tailrace verify``: lets the daemon compare the rows of a destination with the source.

Exit codes: 0 all compared rows are equal (with --repair: now), 1 there are differences, 2 nothing
was compared to the end: wrong usage, refused, no daemon, failed or cancelled.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from tailrace.cli.action_command import add_options, given_in
from tailrace.cli.arguments import (
    add_config,
    client_of,
    refuse,
    require_scope,
    result_text,
    with_lines,
)
from tailrace.cli.verify_text import lines
from tailrace.cli.waiting_bar import WaitingBar, waiting_bar
from tailrace.config.served import load_served
from tailrace.control.actions.verify import VerifyBody
from tailrace.control.bodies import read_body
from tailrace.control.client import DaemonClient, NoDaemon
from tailrace.control.outcome import ActionRefused
from tailrace.errors import TailraceError

EQUAL, DIFFERENT, NO_RESULT = 0, 1, 2
_LOOK_SECONDS = 0.3
_USUAL_SECONDS = 60.0
_OTHERS = ("pause", "resume", "cancel")
_GIVEN_UP = ("cancelled", "replaced", "halted")
"""The states of a repair after which nobody waits for its end."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_config(parser)
    parser.add_argument("scope", help="the scope's name")
    add_options(parser, VerifyBody, ("action", "dry_run"))
    parser.add_argument(
        "--repair",
        action="store_true",
        help="let the documents come again whose rows differ, and compare once more",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="with --repair: only say what would come again"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--status", action="store_true", help="show the last one, and begin none")
    for name in _OTHERS:
        what.add_argument(f"--{name}", action="store_true", help=f"{name} the one that goes on")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Compares, and prints the result."""
    try:
        return _run(options)
    except TailraceError as error:
        from tailrace.cli.exit_report import print_error

        print_error(with_lines(error, options))
        return NO_RESULT


def _run(options: argparse.Namespace) -> int:
    served = load_served(options.config)
    require_scope(options.scope, options.handler, served.handlers, options.config)
    client = client_of(served, options.config)
    parameters, action = given_in(options, VerifyBody), _action(options)
    parameters.pop("dry_run", None)  # of the repair
    if options.dry_run and not options.repair:
        refuse("--dry-run", "needs --repair")
    if action != "start" and (options.repair or parameters.keys() - {"handler"}):
        refuse(f"--{action}", "takes only --handler: what is compared was said at the start")
    path = f"/scopes/{quote(options.scope, safe='')}/verify"
    if action in _OTHERS:
        done: Mapping[str, Any] = client.act(path, {**parameters, "action": action})
        print(result_text(options, done), end="")
        return EQUAL
    query = f"?handler={quote(options.handler, safe='')}" if options.handler else ""
    if action == "start":
        read_body(VerifyBody, json.dumps(parameters).encode(), "")
        begun: Mapping[str, Any] = client.act(path, parameters)
        verification = _ended(client, path + query, begun["handlers"])
        if options.repair and _differences(verification) and verification["state"] == "done":
            repaired = _repaired(client, path, options)
            if options.dry_run:
                verification = {**verification, "repairs": repaired["repairs"]}
            else:
                again: Mapping[str, Any] = client.act(path, parameters)
                verification = _ended(client, path + query, again["handlers"])
                verification = {**verification, "repairs": repaired["repairs"]}
    else:
        last = client.get(path + query)["verification"]
        if last is None:
            raise ActionRefused(409, f"scope {options.scope!r} was never verified")
        verification = last
    print(json.dumps(verification, indent=2) if options.json else "\n".join(lines(verification)))
    return _exit_code(verification, waited=action == "start")


def _action(options: argparse.Namespace) -> str:
    return next((name for name in (*_OTHERS, "status") if getattr(options, name)), "start")


def _ended(client: DaemonClient, path: str, handlers: list[str]) -> Mapping[str, Any]:
    """The verification of these handlers, when it is over."""
    shown = f"{path}{'&' if '?' in path else '?'}keys=false"
    with waiting_bar("comparing", _USUAL_SECONDS) as progress:
        while True:
            try:
                answer = client.awaited(shown, progress.tell)
            except NoDaemon as error:
                message = "the verification goes on when the daemon runs again; --status shows it"
                raise ActionRefused(503, f"{message}: {error}") from error
            verification: Mapping[str, Any] = answer["verification"]
            states = [
                one["state"] for name, one in verification["handlers"].items() if name in handlers
            ]
            if not {"running", "paused"} & {*states}:
                ended: Mapping[str, Any] = client.awaited(path, progress.tell)["verification"]
                return ended
            progress.what = f"comparing, {verification['compared']:,} so far"
            progress.what += f"; {verification['reason']}" if verification["reason"] else ""
            progress.share = min(verification["compared"] / max(verification["estimate"], 1), 1.0)
            time.sleep(_LOOK_SECONDS)


def _exit_code(found: Mapping[str, Any], *, waited: bool) -> int:
    if found["state"] in ("failed", "cancelled"):
        message = f"the verification is {found['state']}; {found['reason']}".rstrip("; ")
        raise ActionRefused(409, message)
    if not waited and found["state"] != "done":
        return NO_RESULT
    return DIFFERENT if _differences(found) else EQUAL


def _differences(found: Mapping[str, Any]) -> int:
    total: int = found["different"] + found["missing"] + found["too_many"]
    return total


def _repaired(client: DaemonClient, path: str, options: argparse.Namespace) -> Mapping[str, Any]:
    """Lets the documents come again, and waits until the handlers have them."""
    body = {"action": "repair", "handler": options.handler, "dry_run": options.dry_run}
    done: Mapping[str, Any] = client.act(path, body)
    print(done["message"], file=sys.stderr)
    if options.dry_run:
        return done
    with waiting_bar("repairing", _USUAL_SECONDS) as progress:
        for one in done["repairs"]:
            while one["snapshot"] and not _is_over(client, path, one, progress):
                time.sleep(_LOOK_SECONDS)
    return done


def _is_over(
    client: DaemonClient, path: str, repair: Mapping[str, Any], progress: WaitingBar
) -> bool:
    """Whether the handler has everything of the snapshot that repairs it."""
    handler, snapshot = repair["handler"], repair["snapshot"]
    query = f"?handler={quote(handler, safe='')}&keys=false"
    seen = (client.awaited(path + query, progress.tell)["verification"] or {}).get("repair")
    if seen is None or seen["snapshot"] != snapshot:
        seen = {"state": "replaced", "reason": "there is another verification or repair"}
    why = f": {seen['reason']}" if seen["reason"] else ""
    if seen["state"] in _GIVEN_UP:
        what = f"snapshot {snapshot}, which repairs handler {handler!r}, is {seen['state']}"
        if seen["state"] == "halted":
            why += "; 'tailrace scopes restart' lets it go on"
        raise ActionRefused(409, f"{what}{why}")
    progress.what = f"repairing, {seen['state']}{why}"
    return bool(seen["state"] == "done")
