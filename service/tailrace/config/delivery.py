"""The settings of delivery: lanes, retries, dead letters, and restarts of scopes."""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from tailrace.config.fields import Bytes, Count, Ratio, Seconds, Section


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
    """How many events may become dead letters, which are in the store, before the scope halts."""

    max_consecutive: Count = 100
    """The number of consecutive dead letters of a handler that halts the scope: so many mean a bad
    deploy, not bad events."""

    max_ratio: Ratio = 0.5
    """The share of the last `ratio_window` events above which dead letters halt the scope."""

    ratio_window: Count = 1000
    """The number of events of a handler that `max_ratio` covers. With fewer it has no effect."""


class DeliverySettings(Section):
    """How events reach handlers."""

    lanes: Count = 64
    """The largest number of events of a scope in handlers at once, each for another document. 1
    keeps the order of the whole scope. Raise it for slow destinations that take many calls."""

    max_in_flight_bytes: Bytes = 64 * 2**20
    """The largest number of bytes of events, over all scopes, that are read and not handled yet
    (events in a lake's open segment count as well). Reading waits above it. Lower it to save
    memory, raise it to absorb slow periods of a handler. One larger reply is accepted alone. What a
    snapshot reads counts when it is handed over: beside it are usually 8 MiB, times `parallel`."""

    retry: RetrySettings = Field(default_factory=RetrySettings)
    """How often and when a failed event is tried again."""

    dead_letters: DeadLetterSettings = Field(default_factory=DeadLetterSettings)
    """How many events may become dead letters."""

    on_failure: Literal["dead_letter", "halt"] = "dead_letter"
    """What follows the last attempt: `dead_letter` stores the event as a dead letter and goes on;
    `halt` stops the scope, for destinations that must never miss an event."""


class SupervisorSettings(Section):
    """How long a scope waits before it is started again after a failure."""

    first_seconds: Seconds = 0.5
    """The first delay. It doubles, with jitter, until the checkpoint has moved."""

    cap_seconds: Seconds = 30.0
    """The longest delay, and so how much later than the server a scope may recover."""

    _cap = field_validator("cap_seconds")(not_below_first)
