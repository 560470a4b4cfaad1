"""The settings for failures of handlers: retries and dead letters."""

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
    """Where events go whose attempts are spent."""

    store: Literal["jsonl", "mongodb"]
    """`jsonl` (default), a file, or `mongodb`, a collection."""

    max_consecutive: Count = 100
    """Dead letters of one handler in a row that halt the scope: 100 poisoned events are chance,
    more are a bad deploy that would drain everything into this file."""

    max_ratio: Ratio = 0.5
    """The share of the last `ratio_window` events that may become dead letters before the scope
    halts."""

    ratio_window: Count = 1000
    """The number of events of a handler that `max_ratio` covers; before so many have come it has no
    effect."""


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
