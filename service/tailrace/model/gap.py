"""A gap: changes that were skipped because the operator's configuration said so."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bson.timestamp import Timestamp

from tailrace.errors import CheckpointCorrupt
from tailrace.model import record_fields
from tailrace.model.token import ResumeToken

FORMAT = 1
"""The version of the stored record. A store never guesses at another one."""


@dataclass(frozen=True, slots=True)
class Gap:
    """What a scope may have missed: everything behind the last handled position, up to ``until``.

    ``token`` and ``since`` are that position, as far as it is known; ``until`` is the server's
    time where the stream went on. ``reason`` is the server's error, ``policy`` the setting that
    allowed it.
    """

    scope: str
    token: ResumeToken | None
    since: Timestamp | None
    until: Timestamp | None
    reason: str
    policy: str
    recorded_at: datetime

    @property
    def digest(self) -> str:
        """What stores know a gap by: equal for identical gaps, and only for those."""
        text = json.dumps(self.to_document(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def order(self) -> tuple[datetime, str]:
        """What "oldest first" compares; of gaps recorded at the same instant any order will do."""
        return self.recorded_at, self.digest

    def to_document(self) -> dict[str, Any]:
        """The record that stores keep: JSON types only. :meth:`from_document` reads it."""
        return {
            "format": FORMAT,
            "scope": self.scope,
            "token": self.token and self.token.to_json(),
            "since": record_fields.time_parts(self.since),
            "until": record_fields.time_parts(self.until),
            "reason": self.reason,
            "policy": self.policy,
            "recorded_at": self.recorded_at.astimezone(UTC).isoformat(),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any], *, where: str) -> Gap:
        """Reads a stored record; ``where`` names it in the error (store, scope, digest).

        Raises :class:`CheckpointCorrupt` for anything that :meth:`to_document` cannot have
        written: what was lost is not a thing to guess at.
        """
        try:
            record_fields.require_format(document, FORMAT)
            return cls(
                scope=record_fields.typed(document, "scope", str),
                token=record_fields.token(document, "token"),
                since=record_fields.time(document, "since"),
                until=record_fields.time(document, "until"),
                reason=record_fields.typed(document, "reason", str),
                policy=record_fields.typed(document, "policy", str),
                recorded_at=record_fields.moment(document, "recorded_at"),
            )
        except (KeyError, ValueError) as error:
            raise unreadable_gap(where, record_fields.fault(error)) from error


def unreadable_gap(where: str, reason: str) -> CheckpointCorrupt:
    """The error for a record that is no gap: ``where`` is its store, scope and digest."""
    return CheckpointCorrupt(
        f"{where}: the gap record cannot be read: {reason}. Nothing was changed, and no position "
        "depends on it. Restore the store from a backup, or remove this record by hand"
    )
