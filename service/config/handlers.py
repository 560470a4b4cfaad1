"""What each type of handler can be told. A new type is one class, and its place in the union."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from service.config.failure import RetrySettings
from service.config.fields import (
    Count,
    Flag,
    OptionalCount,
    OptionalSeconds,
    SecondsOrZero,
    Section,
    Target,
    Text,
)
from service.config.one_of import OneOf


class HandlerBase(Section):
    """What every handler can be told. Where a key is left out, `delivery` decides."""

    timeout_seconds: OptionalSeconds = None
    """How long one attempt may take; then it counts as failed. Default: no limit."""

    retry: RetrySettings | None = None
    """Attempts and delays of this handler. Default: delivery.retry."""

    on_failure: Literal["dead_letter", "halt"] | None = None
    """What follows the last attempt of this handler. Default: delivery.on_failure."""


class LogHandlerSettings(HandlerBase):
    """Writes one log line an event: a first look, not a destination."""

    type: Literal["log"]
    """Chooses this handler."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The level of the lines. `debug` keeps them out of the way unless logging.level is debug."""


class JsonlHandlerSettings(HandlerBase):
    """Appends one event a line to a file, exactly as MongoDB sent it, in Extended JSON v2."""

    type: Literal["jsonl"]
    """Chooses this handler."""

    path: Text
    """The file; its directory is made where it is missing. No default: it is your data."""

    json_format: Literal["relaxed", "canonical"] = Field("relaxed", alias="json")
    """`relaxed` (default) reads well; `canonical` keeps every BSON type, int64 and int32 alike."""

    fsync: Flag = True
    """Whether an event counts as handled only once it is on the disk. `false` is faster, and a
    power cut (not a crash of the process) then loses what the checkpoint already passed."""


class PythonHandlerSettings(HandlerBase):
    """Calls a coroutine function of yours."""

    type: Literal["python"]
    """Chooses this handler."""

    target: Target
    """`package.module:coroutine`: an `async def` of one argument, the event or the events."""

    concurrency: OptionalCount = None
    """How many calls may run at once for one scope, each for another document. Default: as many
    as delivery.lanes. Less where the destination takes less."""

    batch_size: Count = 1000
    """How many events one call gets at most, where the function takes a sequence of events.
    1000 makes the cost of a call small beside that of its events."""

    linger_seconds: SecondsOrZero = 0.0
    """How long such a call may wait for so many events. 0 (default) calls with what is there."""


HandlerSettings = LogHandlerSettings | JsonlHandlerSettings | PythonHandlerSettings

AnyHandler = Annotated[HandlerSettings, OneOf("type")]
