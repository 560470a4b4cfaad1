"""What is done about a handler's failures: attempts, and what follows the last one."""

from __future__ import annotations

from pydantic import ValidationInfo, field_validator

from service.config.fields import Count, Ratio, Seconds, Section, Text


def not_below_first(cap: float, info: ValidationInfo) -> float:
    first = info.data.get("first_seconds", 0)
    if cap < first:
        raise ValueError(f"must not be below first_seconds, which is {first:g}")
    return cap


class RetrySettings(Section):
    """How a handler's failure is retried: exponential delays with jitter."""

    attempts: Count = 5
    """How often an event is tried in all; 1 means no retry. 5, with the delays below, go on for
    about seven seconds: a hiccup of the destination passes, an outage is found out soon."""

    first_seconds: Seconds = 0.5
    """The delay before the second attempt; it doubles from there."""

    cap_seconds: Seconds = 30.0
    """The longest delay."""

    _cap = field_validator("cap_seconds")(not_below_first)


class DeadLetterSettings(Section):
    """Where events go whose attempts are spent."""

    path: Text = "data/dead-letters.jsonl"
    """The file; `tailrace dead-letters` reads it."""

    max_consecutive: Count = 100
    """Dead letters of one handler in a row that halt the scope: 100 poisoned events are chance,
    more are a bad deploy that would drain everything into this file."""

    max_ratio: Ratio = 0.5
    """The part of the last ratio_window events that may be set aside before the scope halts."""

    ratio_window: Count = 1000
    """How many events of one handler max_ratio looks back over; it does not judge before so many
    have come."""
