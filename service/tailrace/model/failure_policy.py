"""What is done about a handler's failures."""

from dataclasses import dataclass

from tailrace.model.backoff import Backoff


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """How often an event is tried, and what happens then.

    The delay between attempts doubles from ``first_seconds`` to ``cap_seconds``, with jitter. An
    attempt takes at most ``timeout_seconds``. After the last one the event becomes a dead letter,
    or, with ``halt``, the scope halts. It also halts after more than ``max_consecutive`` dead
    letters in a row, or more than the share ``max_ratio`` of the last ``ratio_window`` events.
    """

    attempts: int = 1
    first_seconds: float = 0.5
    cap_seconds: float = 30.0
    timeout_seconds: float | None = None
    halt: bool = False
    max_consecutive: int = 100
    max_ratio: float = 0.5
    ratio_window: int = 1000

    @property
    def backoff(self) -> Backoff:
        """The delays between attempts."""
        return Backoff(self.first_seconds, self.cap_seconds)
