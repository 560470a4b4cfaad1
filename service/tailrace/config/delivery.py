"""The settings of delivery: lanes, retries, dead letters, and restarts of scopes."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from tailrace.config.fields import Bytes, Count, Ratio, Seconds, Section, from_environment


def _at_least_one(streams: Any) -> Any:
    number = from_environment(streams)
    if isinstance(number, int) and not isinstance(number, bool) and number < 1:
        raise ValueError(
            "must be at least 1: a handler that falls behind needs a stream of its own to catch up"
        )
    return streams


def not_below_first(cap: float, info: ValidationInfo) -> float:
    first = info.data.get("first_seconds", 0)
    if cap < first:
        raise ValueError(f"must not be below first_seconds, which is {first:g}")
    return cap


class RetrySettings(Section):
    """Retries of a failed event, with exponential delays and jitter."""

    attempts: Count = 5
    """The total number of attempts; 1 means no retry. With the default delays, 5 take about seven
    seconds. Raise it for a destination with longer outages."""

    first_seconds: Seconds = 0.5
    """The delay before the second attempt. It doubles with each further attempt."""

    cap_seconds: Seconds = 30.0
    """The longest delay."""

    _cap = field_validator("cap_seconds")(not_below_first)


class DeadLetterSettings(Section):
    """How many events may become dead letters before a handler halts. The store keeps them."""

    max_consecutive: Count = 100
    """A handler halts if more of its consecutive events become dead letters: that many point to a
    bad deployment, not to bad events. The others go on."""

    max_ratio: Ratio = 0.5
    """The share of its last `ratio_window` events above which dead letters halt a handler."""

    ratio_window: Count = 1000
    """The number of events of a handler that `max_ratio` covers. Before a handler has had this many
    events, `max_ratio` has no effect."""


class DeliverySettings(Section):
    """How events reach handlers."""

    lanes: Count = 64
    """The largest number of events of a scope in handlers at once, each for a different document. 1
    keeps the order of the whole scope. Raise it for slow destinations that accept many calls."""

    max_in_flight_bytes: Bytes = 64 * 2**20
    """The largest number of bytes of events, over all scopes, that are read and not handled yet
    (events in a lake's open segment count as well). Reading waits above this limit. Lower it to
    save memory; raise it to absorb slow periods of a handler. A single larger reply is accepted on
    its own. The chunks of a snapshot count from when they are delivered; before that they usually
    take 8 MiB more, times `parallel`. With less than 64 MiB, replies of the server have about a
    sixteenth of it instead of up to 16 MB."""

    retry: RetrySettings = Field(default_factory=RetrySettings)
    """How often a failed event is retried, and after which delays."""

    dead_letters: DeadLetterSettings = Field(default_factory=DeadLetterSettings)
    """How many events may become dead letters."""

    on_failure: Literal["dead_letter", "halt"] = "dead_letter"
    """What to do after the last attempt: `dead_letter` stores the event as a dead letter and
    continues; `halt` stops the scope, for destinations that must never miss an event."""


class CatchUpSettings(Section):
    """How handlers that are behind the others of their scope catch up."""

    streams: Annotated[Count, BeforeValidator(_at_least_one)] = 2
    """The largest number of change streams that a scope opens beside its shared one. A handler that
    falls behind, or begins later, reads one of its own until it has caught up; further handlers
    wait. Each stream costs the server a cursor and a connection, and takes an equal share of
    `delivery.max_in_flight_bytes`."""


class SupervisorSettings(Section):
    """How long a failed scope waits before it is started again, and what happens if all halt."""

    first_seconds: Seconds = 0.5
    """The first delay. It doubles, with jitter, until the checkpoint has moved."""

    cap_seconds: Seconds = 30.0
    """The longest delay. A scope may recover this much later than the server."""

    when_all_halted: Literal["wait", "exit"] = "wait"
    """What the process does when no scope runs any more and one needs an operator: `wait`, not
    ready, with its page, API and metrics, until a scope is restarted; or `exit` with code 1, for
    where something else than `/readyz` and the alerts is to notice it."""

    _cap = field_validator("cap_seconds")(not_below_first)
