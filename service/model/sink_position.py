"""Where a destination stands that stores its own position together with its data."""

from __future__ import annotations

from dataclasses import dataclass

from bson.timestamp import Timestamp

from service.model.token import ResumeToken


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """The last event that the destination has, as it was stored with its data.

    ``cluster_time`` is that event's, where it was kept. It is needed where one scope has several
    handlers, and the token does not tell the time itself. ``fingerprint`` is that of the pipeline
    and options that the token belongs to; empty means unknown.
    """

    token: ResumeToken
    cluster_time: Timestamp | None = None
    fingerprint: str = ""

    @property
    def time(self) -> Timestamp | None:
        """When the event happened, as far as that is known."""
        return self.cluster_time or self.token.cluster_time
