"""The settings for failures of handlers: retries and dead letters."""

from __future__ import annotations

from pydantic import ValidationInfo, field_validator

from tailrace.config.fields import (
    Count,
    Ratio,
    Seconds,
    Section,
)


def not_below_first(cap: float, info: ValidationInfo) -> float:
    first = info.data.get("first_seconds", 0)
    if cap < first:
        raise ValueError(f"must not be below first_seconds, which is {first:g}")
    return cap


class RetrySettings(Section):
    """Retries of a failed event, with exponential delays and jitter."""

    attempts: Count = 5
    """The number of attempts in all; 1 means no retry. 5 take about seven seconds with the default
    delays. Raise it for a destination with longer outages."""

    first_seconds: Seconds = 0.5
    """The delay before the second attempt. It doubles with each further one."""

    cap_seconds: Seconds = 30.0
    """The longest delay."""

    _cap = field_validator("cap_seconds")(not_below_first)


class DeadLetterSettings(Section):
    """How many events may be set aside before the scope halts. They lie in the store."""

    max_consecutive: Count = 100
    """Dead letters of one handler in a row that halt the scope: 100 poisoned events are chance,
    more are a bad deploy that would set everything aside."""

    max_ratio: Ratio = 0.5
    """The share of the last `ratio_window` events that may become dead letters before the scope
    halts."""

    ratio_window: Count = 1000
    """The number of events of a handler that `max_ratio` covers; before so many have come it has no
    effect."""
