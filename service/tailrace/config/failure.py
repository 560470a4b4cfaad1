"""What is done about a handler's failures: attempts, and what follows the last one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from tailrace.config.fields import (
    CollectionName,
    Count,
    DatabaseName,
    Ratio,
    Seconds,
    Section,
    Text,
    default_kind,
)


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

    store: Literal["jsonl", "mongodb"]
    """`jsonl` (default), a file, or `mongodb`, a collection."""

    max_consecutive: Count = 100
    """Dead letters of one handler in a row that halt the scope: 100 poisoned events are chance,
    more are a bad deploy that would drain everything into this file."""

    max_ratio: Ratio = 0.5
    """The part of the last ratio_window events that may be set aside before the scope halts."""

    ratio_window: Count = 1000
    """How many events of one handler max_ratio looks back over; it does not judge before so many
    have come."""


class JsonlDeadLetterSettings(DeadLetterSettings):
    """Dead letters in a local file: the default, for it needs nothing else."""

    store: Literal["jsonl"] = "jsonl"
    """Chooses this store."""

    path: Text = "data/dead-letters.jsonl"
    """The file; `tailrace dead-letters` reads it. It must outlive the process."""


class MongodbDeadLetterSettings(DeadLetterSettings):
    """Dead letters in the server that is followed: for processes without a disk of their own."""

    store: Literal["mongodb"]
    """Chooses this store."""

    database: DatabaseName = "tailrace"
    """The database; none that a scope follows, or each letter would be a change."""

    collection: CollectionName = "dead_letters"
    """The collection; it is made where it is missing."""


AnyDeadLetters = Annotated[
    JsonlDeadLetterSettings | MongodbDeadLetterSettings,
    Field(discriminator="store"),
    default_kind("store", "jsonl"),
]
