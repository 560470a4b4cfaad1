"""Every setting of the daemon: its unit, its default, and why that default.

Units are in the keys. A relative path is relative to the directory that the process runs in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, Strict, field_validator

from tailrace.config.failure import (
    AnyDeadLetters,
    JsonlDeadLetterSettings,
    RetrySettings,
    not_below_first,
)
from tailrace.config.fields import (
    Bytes,
    CollectionName,
    Count,
    DatabaseName,
    Name,
    Port,
    Seconds,
    SecondsOrZero,
    Section,
    Text,
    Token,
    Uri,
    default_kind,
)
from tailrace.config.handlers import AnyHandler
from tailrace.config.pipeline import PipelineSettings
from tailrace.config.scopes import RouteSettings, ScopeSettings


class MongodbSettings(Section):
    """The server to follow. One of `uri` and `uri_file` is needed."""

    uri: Uri
    """The connection string; give either this or uri_file. Its secrets are kept out of logs and
    of `tailrace check`. No default: the wrong server is worse than none."""

    uri_file: Text | None = None
    """A file that holds the connection string and nothing else (a mounted secret). After loading,
    `uri` is what the file said."""

    driver: Literal["motor", "pymongo"] = "motor"
    """`motor` (default) or `pymongo`, whose own asyncio API is its successor."""

    connect_timeout_seconds: Seconds = 10.0
    """How long the start waits for a server. 10 is patient with a slow name server or a member
    that is just starting, and still tells of a wrong address soon."""


class CheckpointSettings(Section):
    """Where positions are kept, and how often."""

    store: Literal["sqlite", "mongodb", "memory"]
    """`sqlite` (default), `mongodb`, or `memory`, which forgets."""

    interval_seconds: Seconds = 1.0
    """How often a position is saved while changes flow: what a crash repeats at most. 1 makes
    the cost of a save invisible."""


class SqliteCheckpointSettings(CheckpointSettings):
    """Positions in a local file: the default, for it needs nothing else."""

    store: Literal["sqlite"] = "sqlite"
    """Chooses this store."""

    path: Text = "data/checkpoints.db"
    """The file. It must outlive the process: on a volume, in a container."""


class MongodbCheckpointSettings(CheckpointSettings):
    """Positions in the server that is followed: for processes without a disk of their own."""

    store: Literal["mongodb"]
    """Chooses this store."""

    database: DatabaseName = "tailrace"
    """The database; none that a scope follows, or each save would be a change."""

    collection: CollectionName = "checkpoints"
    """The collection; it is made where it is missing."""


class MemoryCheckpointSettings(CheckpointSettings):
    """Positions that are gone with the process: for trying things out."""

    store: Literal["memory"]
    """Chooses this store."""


AnyCheckpoint = Annotated[
    SqliteCheckpointSettings | MongodbCheckpointSettings | MemoryCheckpointSettings,
    Field(discriminator="store"),
    default_kind("store", "sqlite"),
]


class DeliverySettings(Section):
    """How events reach handlers."""

    lanes: Count = 64
    """How many events of a scope may be inside handlers at once, each for another document.
    1 keeps the order of the whole scope."""

    max_in_flight_bytes: Bytes = 64 * 2**20
    """Bytes of raw events, over all scopes, that may be read and not yet handled; reading waits
    above. What a lake's segment has in memory counts as well. 64 MiB is four replies of the largest
    size. Less saves memory, more rides out slow spells of a handler. One larger reply is let in
    alone."""

    retry: RetrySettings = Field(default_factory=RetrySettings)
    """What happens before an event is given up."""

    dead_letters: AnyDeadLetters = Field(default_factory=JsonlDeadLetterSettings)
    """Where it goes then."""

    on_failure: Literal["dead_letter", "halt"] = "dead_letter"
    """Once the attempts are spent: `dead_letter` (default) sets the event aside and goes on;
    `halt` stops the scope, for destinations that must never miss one."""


class SupervisorSettings(Section):
    """How long a scope waits before it is started again after a failure."""

    first_seconds: Seconds = 0.5
    """The first delay; it doubles, with jitter, until the checkpoint has moved."""

    cap_seconds: Seconds = 30.0
    """The longest delay: what an outage's end may cost in freshness."""

    _cap = field_validator("cap_seconds")(not_below_first)


class ShutdownSettings(Section):
    """What SIGTERM and SIGINT allow."""

    grace_seconds: SecondsOrZero = 25.0
    """How long events in flight may take to finish. Closing may take 10 seconds more: give the
    process at least as much (Kubernetes: terminationGracePeriodSeconds 45 for 25, the default)."""


class HttpSettings(Section):
    """Metrics, health and status."""

    host: Text = "127.0.0.1"
    """The address to listen on; `0.0.0.0` in a container. Beyond loopback, whoever reaches it may
    read, and nobody may change anything without the token."""

    port: Port = 9464
    """The port; 0 takes any free one. 9464 is what exporters of OpenTelemetry use."""

    liveness_seconds: Seconds = 300.0
    """Without a round trip to the server for so long, a scope that should be streaming makes
    `/livez` fail. 300 outlasts elections and maintenance."""

    token: Token | None = None
    """The bearer token of whoever may change something (restart a halted scope). Default: none,
    and then changes are taken on loopback only."""

    token_file: Text | None = None
    """A file that holds the token and nothing else (a mounted secret). After loading, `token` is
    what the file said."""

    protect: Literal["changes", "everything"] = "changes"
    """What needs the token: `changes` (default), or `everything`, reading too, but for the bare
    verdicts of `/livez` and `/readyz`. Prometheus and browsers can give one."""


class LoggingSettings(Section):
    """What is written to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is written."""

    format: Literal["json", "console"] = "json"
    """`json` (default) for machines, `console` for eyes."""


class Settings(Section):
    """The whole configuration of a Tailrace process."""

    mongodb: MongodbSettings
    """The server to follow, told by uri or uri_file."""

    checkpoint: AnyCheckpoint = Field(default_factory=SqliteCheckpointSettings)
    """Positions."""

    delivery: DeliverySettings = Field(default_factory=DeliverySettings)
    """From the stream to the handlers."""

    supervisor: SupervisorSettings = Field(default_factory=SupervisorSettings)
    """Restarts."""

    shutdown: ShutdownSettings = Field(default_factory=ShutdownSettings)
    """The end."""

    http: HttpSettings = Field(default_factory=HttpSettings)
    """Looking in from outside."""

    logging: LoggingSettings = Field(default_factory=LoggingSettings)
    """Logs."""

    pipeline: PipelineSettings = Field(default_factory=PipelineSettings)
    """The Spark job (`tailrace pipeline --config`); the daemon does not read it."""

    scopes: Annotated[tuple[ScopeSettings, ...], Strict(False), Field(min_length=1)]
    """What is followed; at least one."""

    handlers: Mapping[Name, AnyHandler]
    """Where changes go: handlers by a name of yours."""

    routes: Annotated[tuple[RouteSettings, ...], Strict(False), Field(min_length=1)]
    """Which changes go where; each scope needs at least one."""
