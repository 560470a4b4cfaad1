"""Error replies of the server, and the code names that it knows."""

from collections.abc import Iterable
from typing import Any

RESUMABLE = "ResumableChangeStreamError"

# src/mongo/base/error_codes.yml of the server; only the codes that a change stream can meet.
CODE_NAMES = {
    6: "HostUnreachable",
    13: "Unauthorized",
    43: "CursorNotFound",
    50: "MaxTimeMSExpired",
    59: "CommandNotFound",
    72: "InvalidOptions",
    73: "InvalidNamespace",
    91: "ShutdownInProgress",
    189: "PrimarySteppedDown",
    237: "CursorKilled",
    260: "InvalidResumeToken",
    280: "ChangeStreamFatalError",
    286: "ChangeStreamHistoryLost",
    10107: "NotWritablePrimary",
    11600: "InterruptedAtShutdown",
    11602: "InterruptedDueToReplStateChange",
    12051: "CursorInUse",
    13435: "NotPrimaryNoSecondaryOk",
    13436: "NotPrimaryOrSecondary",
}

# After these errors a driver discards what it knows of the member (Server Discovery and Monitoring
# specification, "not writable primary" and "node is recovering" errors).
STATE_CHANGES = frozenset({91, 189, 10107, 11600, 11602, 13435, 13436})


class ServerError(Exception):
    """An error reply, which command handlers and hooks may raise."""

    def __init__(
        self,
        code: int,
        message: str = "",
        *,
        labels: Iterable[str] = (),
    ) -> None:
        self.code = code
        self.code_name = CODE_NAMES.get(code, f"Location{code}")
        self.message = message or f"scripted failure: {self.code_name}"
        self.labels = tuple(labels)
        super().__init__(f"{self.code_name} ({code}): {self.message}")

    def document(self) -> dict[str, Any]:
        """The reply's document, without the fields that every reply has."""
        reply: dict[str, Any] = {
            "ok": 0.0,
            "errmsg": self.message,
            "code": self.code,
            "codeName": self.code_name,
        }
        if self.labels:
            reply["errorLabels"] = list(self.labels)
        return reply


class ConnectionCutError(Exception):
    """The command gets no reply: its connection is cut instead."""
