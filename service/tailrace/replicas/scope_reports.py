"""What a member says of the scopes that it follows: a text that it writes with its heartbeat.

Other members show it. So every page tells how every scope is, as the process that follows it says.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Protocol

from tailrace.engine import Watcher
from tailrace.engine.held_lease import ScopeReport
from tailrace.masking import masked_line

_LONGEST = 300
"""The longest reason, in characters: the heartbeats of many scopes stay small."""


class ReportedScope(Protocol):
    """A scope; ``followed``: its watcher, while this process has the lease."""

    @property
    def followed(self) -> Watcher | None: ...


def report_text(of: Iterable[ReportedScope]) -> str:
    """The text for those of the scopes that this process follows."""
    scopes = {}
    for watcher in filter(None, [scope.followed for scope in of]):
        status = watcher.status
        lag = status.lags.get("handled")
        reason = masked_line(status.explanation, _LONGEST)
        scopes[watcher.name] = [status.state.value, reason, None if lag is None else round(lag, 1)]
    return json.dumps(scopes, separators=(",", ":"))


def read_reports(text: str) -> Mapping[str, ScopeReport]:
    """By scope, what the text says; nothing if it is damaged or another version's."""
    try:
        return {
            str(name): ScopeReport(str(state), str(reason), None if lag is None else float(lag))
            for name, (state, reason, lag) in json.loads(text).items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}
