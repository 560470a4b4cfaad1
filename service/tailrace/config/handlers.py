"""The settings of each type of handler. To add a type, write its class and add it to the union."""

from typing import Annotated, Literal

from pydantic import Field

from tailrace.config.delivery import RetrySettings
from tailrace.config.fields import (
    Bytes,
    Count,
    ExceptionName,
    Flag,
    Items,
    OpaqueMapping,
    Seconds,
    SecondsOrZero,
    Section,
    Target,
    Text,
)


class HandlerBase(Section):
    """The settings of all handlers but `parquet`. `delivery` decides for a key that is left out."""

    timeout_seconds: Seconds | None = None
    """The time limit of one attempt, for destinations that may hang. Without it there is none."""

    retry: RetrySettings | None = None
    """The attempts and delays of this handler, instead of `delivery.retry`."""

    on_failure: Literal["dead_letter", "halt"] | None = None
    """What to do after the last attempt of this handler, instead of `delivery.on_failure`. A
    handler that stores its own position halts unless this says otherwise."""

    outages: Items[ExceptionName] = ()
    """Exceptions, as `package.module.Name`, which say that the destination is down, such as
    `psycopg.OperationalError`. Python's own connection errors always do."""


class LogHandlerSettings(HandlerBase):
    """Writes one log line for each event: for a first look, not a destination."""

    type: Literal["log"]
    """Selects this handler."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The level of the lines. `debug` hides them unless `logging.level` is `debug`."""


class JsonlHandlerSettings(HandlerBase):
    """Appends each event to a file as one line of Extended JSON v2, exactly as MongoDB sent it."""

    type: Literal["jsonl"]
    """Selects this handler."""

    path: Text
    """The file. A missing directory is created."""

    json_format: Literal["relaxed", "canonical"] = Field("relaxed", alias="json")
    """The form of Extended JSON: `relaxed` is easier to read, `canonical` keeps every BSON type."""

    fsync: Flag = True
    """Whether an event must be on the disk before it counts as handled. `false` is faster, but a
    power cut (not a crash of the process) may lose events that the checkpoint has passed."""


class PythonHandlerSettings(HandlerBase):
    """Calls your coroutine function, or an object of your class."""

    type: Literal["python"]
    """Selects this handler."""

    target: Target
    """The function or class, as `package.module:name`: an `async def` that takes an event or a
    sequence of events, or a class with a coroutine method `write(batch)` or `__call__`."""

    options: OpaqueMapping = Field(default_factory=dict)
    """The arguments of the class, by name. They are checked against its annotations."""

    concurrency: Count | None = None
    """The largest number of calls at once for a scope, each for a different document. Without it,
    `delivery.lanes`. Lower it if the destination accepts fewer."""

    batch_size: Count = 1000
    """The largest number of events in a call, for a `write` or a function that takes a sequence."""

    batch_bytes: Bytes = 16 * 1024 * 1024
    """The largest size of the events in such a call, as the server sent them. A larger event, and
    with `transactions: grouped` a larger transaction, comes alone."""

    linger_seconds: SecondsOrZero = 0.0
    """How long such a call may wait for a full batch. With 0, a call gets the events that are there
    already. Raise it if a call is expensive."""


class ParquetHandlerSettings(Section):
    """Writes each event exactly once to a lake of Parquet segments. Needs the extra `lake`."""

    type: Literal["parquet"]
    """Selects this handler."""

    path: Text
    """The lake: a directory, created if missing, or `s3://bucket/prefix` (credentials, region and
    endpoint from `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`,
    `AWS_ENDPOINT_URL`)."""

    documents: Literal["bson", "canonical"] = "bson"
    """How documents are stored: `bson` as the server sent them, or `canonical` Extended JSON v2,
    which every tool can read but which costs three times as much."""

    segment_rows: Count = 50_000
    """A segment is complete after this many events."""

    segment_bytes: Bytes = 16 * 1024 * 1024
    """… or after this many bytes of events, as the server sent them. Events are encoded as they
    arrive and written one row group at a time (to an object store: one segment), so this may exceed
    `delivery.max_in_flight_bytes`. A transaction is never divided."""

    segment_seconds: Seconds = 5.0
    """… or after this many seconds, which limits how old the newest event in the lake may be. Raise
    it for fewer and larger segments."""


HandlerSettings = (
    LogHandlerSettings | JsonlHandlerSettings | ParquetHandlerSettings | PythonHandlerSettings
)

AnyHandler = Annotated[HandlerSettings, Field(discriminator="type")]
