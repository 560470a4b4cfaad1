"""A gap: changes that were skipped because the configuration allowed it."""

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from bson.timestamp import Timestamp

from tailrace.model.stored_record import StoredRecord
from tailrace.model.token import ResumeToken

SET_ASIDE = "set_aside"
"""The policy of a gap of one event, which an operator set aside."""


@dataclass(frozen=True, slots=True)
class Gap(StoredRecord):
    """What a scope may have missed: everything after its last handled position, up to ``until``.

    ``token`` and ``since`` are that position, as far as it is known. ``reason`` is the server's
    error, ``policy`` the setting that allowed the gap, or ``seek``: an operator moved the scope.
    With ``set_aside`` the token is that of the one event that an operator left out, both times are
    the event's, and the reason names its document. ``handlers``: those that have missed it;
    ``None``: all of the scope.
    """

    NAME: ClassVar = "gap record"
    REMEDY: ClassVar = "remove this record by hand: no position depends on it"

    scope: str
    token: ResumeToken | None
    since: Timestamp | None
    until: Timestamp | None
    reason: str
    policy: str
    recorded_at: datetime
    handlers: tuple[str, ...] | None = None

    def concerns(self, handler: str) -> bool:
        """Whether this handler has missed it."""
        return self.handlers is None or handler in self.handlers

    @property
    def digest(self) -> str:
        """The key of a gap in a store. Only identical gaps have equal keys."""
        text = json.dumps(self.to_document(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def sort_key(self) -> tuple[datetime, str]:
        """The sort key for "oldest first"."""
        return self.recorded_at, self.digest
