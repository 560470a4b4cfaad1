"""How far one event is that is read, and that not all handlers have handled."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tailrace.model import ResumeToken


class Stage(StrEnum):
    QUEUED = "queued"
    """It waits for its handler."""
    DELIVERED = "delivered"
    """The handler has it, or it waits behind an earlier change of its document."""
    RETRYING = "retrying"
    WAITING = "waiting"
    """For the handler's destination, which does not answer."""
    HANDLED = "handled"


@dataclass(frozen=True, slots=True)
class InFlight:
    """The stage of an event for one handler, with a sentence for people."""

    stage: Stage
    detail: str


Find = Callable[[ResumeToken], Mapping[str, InFlight] | None]
"""By handler, the stage of the event with a token; ``None`` if it is not in flight."""
