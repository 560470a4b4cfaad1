"""Asks the daemon on this machine, as the command line does."""

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from tailrace.control.outcome import ActionRefused
from tailrace.observe import health_check

_SECONDS = 60.0
"""How long an answer may take. The daemon may itself wait for a server, which takes the driver 30 s
by default to call absent."""
_IN_A_WHILE = 503
_LOOK_SECONDS = 0.3


class NoDaemon(ActionRefused):
    """No daemon answers on this machine."""

    def __init__(self, reason: str) -> None:
        super().__init__(0, reason)


@dataclass(frozen=True, slots=True)
class DaemonClient:
    """The daemon that listens on ``host`` and ``port``; ``config`` names its configuration, and
    ``expected`` the token that it should accept.

    Every call raises :class:`ActionRefused` with the daemon's own sentence, and :class:`NoDaemon`.
    """

    host: str
    port: int
    token: str
    config: str
    expected: str

    def get(self, path: str, *, patience_seconds: float = _SECONDS, **query: Any) -> Any:
        """What a path answers, in JSON types."""
        given = {
            name: str(value).lower() if isinstance(value, bool) else value
            for name, value in query.items()
            if value is not None
        }
        asked = f"{path}?{urlencode(given, doseq=True)}" if given else path
        return self._ask("GET", asked, None, patience_seconds)

    def awaited(self, path: str, told: Callable[[str], object]) -> Any:
        """The same, for somebody who waits: while a scope is just starting, or a store is away, the
        daemon is asked again. ``told`` gets its reason."""
        while True:
            try:
                return self.get(path)
            except ActionRefused as error:
                if error.status != _IN_A_WHILE:
                    raise
                told(str(error))
            time.sleep(_LOOK_SECONDS)

    def act(
        self, path: str, body: Mapping[str, Any] | None = None, patience_seconds: float = _SECONDS
    ) -> Any:
        """The answer to an action."""
        return self._ask("POST", path, json.dumps(body or {}), patience_seconds)

    def _ask(self, method: str, path: str, body: str | None, patience_seconds: float) -> Any:
        status, answer = health_check.request(
            self.host,
            self.port,
            path,
            method=method,
            token=self.token,
            by=operator(),
            body=body,
            seconds=patience_seconds,
        )
        match status:
            case 200 | 202:
                return json.loads(answer)
            case health_check.NOBODY:
                raise NoDaemon(f"{answer}. Does the daemon of {self.config} run on this machine?")
            case health_check.NO_ANSWER:
                raise ActionRefused(status, f"{answer}. See the daemon's log")
            case 401:
                message = f"its token is not {self.expected}"
                raise ActionRefused(status, f"the daemon refuses this: {message}")
            case 403:
                raise ActionRefused(status, f"the daemon refuses this: it {answer}")
        raise ActionRefused(status, answer)


def operator() -> str:
    """Who runs this process, for the log of a daemon: user and machine, in ASCII."""
    user = os.environ.get("USER") or f"user {os.getuid()}"
    return f"{user} on {socket.gethostname()}".encode("ascii", "replace").decode()
