"""The outcome of an action: done, or refused."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.errors import TailraceError


class ActionRefused(TailraceError):
    """Nothing was done. ``status`` is that of HTTP; the message is one sentence, with what to do.

    400: the request is malformed. 404: what it names does not exist. 409: the state does not allow
    it. 422: it can never be done as asked. 503: a store or a server did not answer, or the scope
    is just starting: the same request may work in a while.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def elsewhere(scope: str, owner: str | None, reason: str) -> ActionRefused:
    """The refusal of what only the process that follows a scope can do.

    ``owner`` and ``reason``: as in :class:`tailrace.engine.held_lease.ObservedLease`.
    """
    if owner:
        message = f"scope {scope!r} is followed by {owner}, and not by this process: ask there"
    else:
        why = f" ({reason})" if reason else ""
        message = f"this process does not follow scope {scope!r}{why}: try again in a while"
    return ActionRefused(409, message)


@dataclass(frozen=True, slots=True)
class Done:
    """What was done, in one sentence. ``before`` and ``after`` say so in the log.

    ``details`` stand beside the message in the answer, in JSON types.
    """

    message: str
    before: str = ""
    after: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
