"""Recorded commands."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Command:
    """One received command; `at` is `time.monotonic()`."""

    at: float
    member: int
    connection: int
    name: str
    database: str
    document: Mapping[str, Any]

    @property
    def change_stream(self) -> Mapping[str, Any] | None:
        """The `$changeStream` stage of an aggregate; None for any other command."""
        if self.name != "aggregate" or not self.document.get("pipeline"):
            return None
        stage: Mapping[str, Any] | None = self.document["pipeline"][0].get("$changeStream")
        return stage
