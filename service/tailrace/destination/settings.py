"""The settings of destinations: their common keys, and the types of those of each one.

The types have the messages for wrong values, and read a value from the environment as what it
stands for; pydantic's own would do without that.
"""

from typing import ClassVar, Literal

from pydantic import Field

from tailrace.config.delivery import RetrySettings
from tailrace.config.fields import (
    HEADER_NAME,
    Bytes,
    CollectionName,
    Count,
    DatabaseName,
    ExceptionName,
    Flag,
    Items,
    OneOrMore,
    OpaqueMapping,
    Seconds,
    SecondsOrZero,
    Section,
    Target,
    Text,
    http_url,
    like,
)
from tailrace.config.handlers import AnyHandlerSettings
from tailrace.config.interpolation import Interpolated, Unresolved
from tailrace.destination.field_settings import FieldSettings

__all__ = [
    "HEADER_NAME",
    "AnyHandlerSettings",
    "BatchHandlerSettings",
    "Bytes",
    "CollectionName",
    "CommitHandlerSettings",
    "Count",
    "DatabaseName",
    "DocumentHandlerSettings",
    "FieldSettings",
    "Flag",
    "HandlerSettings",
    "Interpolated",
    "Items",
    "MessageHandlerSettings",
    "OneOrMore",
    "OpaqueMapping",
    "Seconds",
    "SecondsOrZero",
    "Section",
    "Target",
    "Text",
    "Unresolved",
    "http_url",
    "like",
]


class DocumentHandlerSettings(AnyHandlerSettings):
    """The settings of all handlers: what they get of documents."""

    fields: FieldSettings = Field(default_factory=FieldSettings)
    """Which fields of documents this handler gets, and in which form: see docs/fields.md."""

    transform: Target | None = None
    """A function of your own that changes documents, or leaves some out, as `package.module:name`:
    see docs/fields.md. It gets what `hash` and `mask` leave, and the other rules of `fields` apply
    to what it returns."""

    maps_fields: ClassVar[bool] = False
    """Whether its type applies :meth:`FieldSettings.mapping` itself."""

    @property
    def needs_documents(self) -> bool:
        return self.fields.flatten is not None or self.transform is not None


class HandlerSettings(DocumentHandlerSettings):
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

    @property
    def attempt_seconds(self) -> float | None:
        """The time limit that the engine sets for an attempt; none if the handler has its own."""
        return self.timeout_seconds


class BatchHandlerSettings(HandlerSettings):
    """The settings of handlers that get several events in a call."""

    batch_size: Count = 1000
    """The largest number of events in a call, for a `write` or a function that takes a sequence."""

    batch_bytes: Bytes = 16 * 1024 * 1024
    """The largest size of the events in such a call, as the server sent them. A larger event, and
    with `transactions: grouped` a larger transaction, comes alone."""

    linger_seconds: SecondsOrZero = 0.0
    """How long such a call may wait for a full batch. With 0, a call gets the events that are there
    already. Raise it if a call is expensive."""


class CommitHandlerSettings(BatchHandlerSettings):
    """The settings of handlers whose class may have `commit`."""

    commit_events: Count = 50_000
    """For a class with `commit`: it is called after this many events."""

    commit_bytes: Bytes = 16 * 1024 * 1024
    """… or after this many bytes of events, as the server sent them. They count as in flight until
    then."""

    commit_seconds: Seconds = 5.0
    """… or after this many seconds, which limits how old an uncommitted event may be."""


class MessageHandlerSettings(BatchHandlerSettings):
    """The settings of destinations that get a message for each event."""

    envelope: Literal["native", "document", "debezium", "cloudevents"] = "native"
    """The form of a message: see docs/envelopes.md."""

    json_format: Literal["relaxed", "canonical"] = Field("relaxed", alias="json")
    """The Extended JSON of messages, except of `debezium`."""

    maps_fields: ClassVar[bool] = True
