"""What each type of handler can be told. A new type is one class, and its place in the union."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from service.config.fields import Count, Flag, OptionalCount, Section, Target, Text
from service.config.one_of import OneOf


class LogHandlerSettings(Section):
    """Writes one log line an event: a first look, not a destination."""

    type: Literal["log"]
    """Chooses this handler."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The level of the lines. `debug` keeps them out of the way unless logging.level is debug."""


class JsonlHandlerSettings(Section):
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


class PythonHandlerSettings(Section):
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


HandlerSettings = LogHandlerSettings | JsonlHandlerSettings | PythonHandlerSettings

AnyHandler = Annotated[HandlerSettings, OneOf("type")]
