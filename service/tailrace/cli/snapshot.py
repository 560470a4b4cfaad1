"""``tailrace snapshot``: asks the running daemon on this machine."""

import argparse
import json
import sys
import time
from typing import Any
from urllib.parse import quote, urlencode

from tailrace.cli.arguments import read_settings
from tailrace.config.settings import HttpSettings
from tailrace.observe import health_check

_LOOK_SECONDS = 1.0
_WIDTH = 30
"""Characters of a progress bar."""


def run(options: argparse.Namespace) -> int:
    """0 where the daemon has done, or begun, what was asked for."""
    http = read_settings(options).http
    if options.verb == "status":
        return _status(http, options.scope, watch=options.watch)
    asked = [("action", options.verb)]
    if options.verb == "start":
        asked += [("collection", each) for each in options.collection]
        asked += [("filter", options.filter)] if options.filter else []
    path = f"/scopes/{quote(options.scope, safe='')}/snapshot?{urlencode(asked)}"
    well, answer = health_check.ask(http.host, http.port, path, method="POST", token=_token(http))
    print(answer, file=sys.stdout if well else sys.stderr)
    return 0 if well else 1


def _status(http: HttpSettings, scope: str, *, watch: bool) -> int:
    before: dict[str, tuple[float, int]] = {}
    while True:
        well, answer = health_check.ask(http.host, http.port, "/status", token=_token(http))
        if not well:
            print(answer, file=sys.stderr)
            return 1
        scopes = json.loads(answer)["scopes"]
        if scope not in scopes:
            print(f"there is no scope {scope!r}", file=sys.stderr)
            return 1
        snapshot = scopes[scope].get("snapshot")
        for line in lines(snapshot, before, time.monotonic()):
            print(line)
        if not watch or snapshot is None or snapshot["state"] in ("done", "cancelled"):
            return 0
        time.sleep(_LOOK_SECONDS)


def lines(
    snapshot: dict[str, Any] | None, before: dict[str, tuple[float, int]], now: float
) -> list[str]:
    """What is shown of a snapshot; ``before`` has when how many documents had been read."""
    if snapshot is None:
        return ["the scope has had no snapshot"]
    why = f": {snapshot['note']}" if snapshot["note"] else ""
    shown = [f"snapshot {snapshot['id']} ({snapshot['mode']}): {snapshot['state']}{why}"]
    for each in snapshot["collections"]:
        name, done, left = each["collection"], each["documents"], each["remaining"]
        rate = ""
        if name in before and now > before[name][0]:
            speed = (done - before[name][1]) / (now - before[name][0])
            rate = f"  {speed:,.0f}/s" + (f", {left / speed:,.0f} s left" if speed > 0 else "")
        before[name] = (now, done)
        share = 1.0 if not left else done / (done + left)
        bar = ("#" * round(share * _WIDTH)).ljust(_WIDTH, ".")
        state = each["note"] or each["state"]
        about = f"{done:,} of about {done + left:,}"
        shown.append(f"  {name}  [{bar}] {about}{rate}  {state}")
    return shown


def _token(http: HttpSettings) -> str:
    return http.token.get_secret_value() if http.token else ""
