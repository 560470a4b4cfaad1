"""What each type of handler can be told. A new type is one class, and its place in the union."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tailrace.config.failure import RetrySettings
from tailrace.config.fields import (
    Bytes,
    Count,
    Flag,
    Seconds,
    SecondsOrZero,
    Section,
    Target,
    Text,
)


class HandlerBase(Section):
    """What every handler can be told. Where a key is left out, `delivery` decides."""

    timeout_seconds: Seconds | None = None
    """How long one attempt may take; then it counts as failed. Default: no limit."""

    retry: RetrySettings | None = None
    """Attempts and delays of this handler, instead of all of delivery.retry, its default."""

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

    concurrency: Count | None = None
    """How many calls may run at once for one scope, each for another document. Default: as many
    as delivery.lanes. Less where the destination takes less."""

    batch_size: Count = 1000
    """How many events one call gets at most, where the function takes a sequence of events.
    1000 makes the cost of a call small beside that of its events."""

    linger_seconds: SecondsOrZero = 0.0
    """How long such a call may wait for so many events. 0 (default) calls with what is there."""


class ParquetHandlerSettings(Section):
    """Lands events in a lake: Parquet segments by scope, each event exactly once. Needs the extra
    `lake`."""

    type: Literal["parquet"]
    """Chooses this handler."""

    path: Text
    """The lake: a directory, made where it is missing, or `s3://bucket/prefix` (credentials, region
    and endpoint from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL)."""

    documents: Literal["bson", "canonical", "relaxed"] = "bson"
    """How documents are kept: `bson` (default) as the server sent them, a third of the cost of
    `canonical` or `relaxed` Extended JSON v2, which is text that other tools read at once."""

    segment_rows: Count = 50_000
    """A segment is written when so many events have come, …"""

    segment_bytes: Bytes = 16 * 1024 * 1024
    """… or so many bytes of them as the server sent them (16 MiB). They are encoded as they come,
    and written out by the row group (to an object store with the whole segment), so it may be more
    than delivery.max_in_flight_bytes. A transaction is never divided, and must fit into that."""

    segment_seconds: Seconds = 5.0
    """… or so many seconds after the first of them: how old the newest event in the lake may be.
    More gives fewer and larger segments."""


HandlerSettings = (
    LogHandlerSettings | JsonlHandlerSettings | ParquetHandlerSettings | PythonHandlerSettings
)

AnyHandler = Annotated[HandlerSettings, Field(discriminator="type")]
