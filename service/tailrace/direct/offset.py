"""Where a query stands: what Spark writes into its checkpoint and gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.errors import CheckpointCorrupt
from tailrace.model import ResumeToken, StartPoint, record_fields

FORMAT = 1
"""The version of the record. A reader never guesses at another one."""


@dataclass(frozen=True, slots=True)
class Offset:
    """A place in a stream, and how many events of the query lie before it.

    Two offsets name the events between them by their number, and not by the tokens at both ends:
    a post-batch token is no event's, and not every server's tokens can be compared. ``event`` is
    the digest of the last event's token, by which a batch that is read again is known to be the
    same. ``invalidated`` says that this event was an invalidate. ``cluster`` and ``fingerprint``
    say what the token is good for; they are empty before the first read.
    """

    ordinal: int
    start: StartPoint
    event: str = ""
    invalidated: bool = False
    cluster: str = ""
    fingerprint: str = ""

    def to_record(self) -> dict[str, Any]:
        """JSON types only. Equal offsets have equal texts, by which Spark compares them."""
        token = self.start.token
        return {
            "format": FORMAT,
            "ordinal": self.ordinal,
            "token": token and token.to_json(),
            "time": record_fields.time_parts(self.start.at_operation_time),
            "event": self.event,
            "invalidated": self.invalidated,
            "cluster": self.cluster,
            "fingerprint": self.fingerprint,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Offset:
        """Reads what :meth:`to_record` wrote; raises :class:`CheckpointCorrupt` for all else."""
        try:
            record_fields.require_format(record, FORMAT)
            return cls(
                ordinal=record_fields.count(record, "ordinal"),
                start=_start(record_fields.token(record, "token"), record),
                event=record_fields.typed(record, "event", str),
                invalidated=record["invalidated"] is True,
                cluster=record_fields.typed(record, "cluster", str),
                fingerprint=record_fields.typed(record, "fingerprint", str),
            )
        except (KeyError, ValueError) as error:
            raise CheckpointCorrupt(
                f"the offset in the query's checkpoint is none of this source: "
                f"{record_fields.fault(error)}. Is checkpointLocation that of another query?"
            ) from error


def _start(token: ResumeToken | None, record: Mapping[str, Any]) -> StartPoint:
    # startAfter takes every token, an invalidate's too; resumeAfter would refuse that one.
    return StartPoint(start_after=token, at_operation_time=record_fields.time(record, "time"))
