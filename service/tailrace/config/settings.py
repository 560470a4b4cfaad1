"""The whole configuration, its smaller sections, and its JSON schema.

Units are in the keys. A relative path is relative to the working directory of the process, except
the files of ``include``.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, Union

from pydantic import Field, create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import CoreSchema

from tailrace.config.delivery import CatchUpSettings, DeliverySettings, SupervisorSettings
from tailrace.config.fields import (
    Count,
    Name,
    OneOrMore,
    Seconds,
    SecondsOrZero,
    Section,
    Text,
    Uri,
)
from tailrace.config.handlers import AnyHandlerSettings
from tailrace.config.http import HttpSettings
from tailrace.config.pipeline import PipelineSettings
from tailrace.config.scopes import RouteSettings, ScopeSettings
from tailrace.config.store import AnyStore, SqliteStoreSettings
from tailrace.config.telemetry import TelemetrySettings


class MongodbSettings(Section):
    """The server to follow. Either `uri` or `uri_file` is required."""

    uri: Uri
    """The connection string. Give either this or `uri_file`. Its secrets are masked in all
    output."""

    uri_file: Text | None = None
    """A file that holds the connection string and nothing else, such as a mounted secret."""

    driver: Literal["motor", "pymongo"] = "motor"
    """The driver: Motor, or PyMongo's own asyncio API, which is Motor's successor."""

    connect_timeout_seconds: Seconds = 10.0
    """How long Tailrace waits for a server at the start before it exits with 1. Raise it for slow
    members."""


class CheckpointSettings(Section):
    """How often positions are saved."""

    interval_seconds: Seconds = 1.0
    """How often the position is saved while changes arrive. A crash repeats at most this many
    seconds of changes. Raise it for a slow disk."""


class ShutdownSettings(Section):
    """What happens after SIGTERM and SIGINT."""

    grace_seconds: SecondsOrZero = 25.0
    """How long events in handlers may take to finish. Closing may take 10 seconds more. The
    orchestrator's own limit must be longer than the sum (Kubernetes:
    `terminationGracePeriodSeconds: 45` for 25)."""


class ReplicasSettings(Section):
    """Several processes share the scopes of one store: one follows a scope, the others stand by."""

    lease_seconds: Annotated[Seconds, Field(ge=1)] = 10.0
    """How long a lease lasts, and so how long a scope may wait for another process after a crash.
    The store must always answer within 0.3 of it."""

    max_scopes: Count | None = None
    """The largest number of scopes that this process follows. Without it, any number."""

    name: Name | None = None
    """The name of this process in `/status` of the others; by default its host name and its HTTP
    port. Each process needs a different name: the start of a second one is refused while the first
    one is alive."""


class LoggingSettings(Section):
    """The log, which goes to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is logged."""

    format: Literal["auto", "json", "console"] = "auto"
    """The format of a line: `json` for machines, `console` for people, `auto` for `console` on a
    terminal and `json` elsewhere."""


class Settings(Section):
    """The whole configuration of a Tailrace process.

    Files are read as a model of :func:`model_of`, which knows the types of handlers.
    """

    mongodb: MongodbSettings
    """The server to follow: `uri` or `uri_file`."""

    store: AnyStore = Field(default_factory=SqliteStoreSettings)
    """Where checkpoints, gaps, dead letters and leases are stored."""

    checkpoint: CheckpointSettings = Field(default_factory=CheckpointSettings)
    """How positions are saved."""

    delivery: DeliverySettings = Field(default_factory=DeliverySettings)
    """How events reach handlers."""

    catch_up: CatchUpSettings = Field(default_factory=CatchUpSettings)
    """How handlers that are behind the others of their scope catch up."""

    supervisor: SupervisorSettings = Field(default_factory=SupervisorSettings)
    """When a failed scope starts again."""

    shutdown: ShutdownSettings = Field(default_factory=ShutdownSettings)
    """How the process ends."""

    replicas: ReplicasSettings | None = None
    """How processes that share the store divide the scopes. Without it, this process follows all of
    them."""

    http: HttpSettings = Field(default_factory=HttpSettings)
    """The HTTP server for metrics, health and status."""

    logging: LoggingSettings = Field(default_factory=LoggingSettings)
    """The log."""

    telemetry: TelemetrySettings | None = None
    """Traces and metrics for a collector of OpenTelemetry. Without it, none are sent."""

    pipeline: PipelineSettings = Field(default_factory=PipelineSettings)
    """The Spark job (`tailrace pipeline --config`), which reads only this section and needs no
    variable of the others. Of it the daemon uses only `tables`, for `tailrace why`."""

    scopes: OneOrMore[ScopeSettings]
    """The change streams to follow, at least one."""

    handlers: Mapping[Name, AnyHandlerSettings]
    """Where changes go. The keys are the names of the handlers; `type` selects what each does."""

    routes: OneOrMore[RouteSettings]
    """Which changes go to which handlers. Every scope needs at least one route."""

    include: OneOrMore[Text] | None = None
    """Further files of this configuration, relative to the file that names them. Their scopes and
    routes are joined in the order of the files, and their handlers are put together. A handler, or
    any other section, is given in one file only."""


def model_of(handlers: Iterable[type[AnyHandlerSettings]]) -> type[Settings]:
    """The configuration with handlers of these types, at least two. Cached by the types."""
    return _model_of(tuple(handlers))


@cache
def _model_of(handlers: tuple[type[AnyHandlerSettings], ...]) -> type[Settings]:
    description = Settings.model_fields["handlers"].description
    either: Any = Annotated[Union[handlers], Field(discriminator="type")]  # noqa: UP007
    named: Any = (Mapping[Name, either], Field(description=description))
    return create_model("Settings", __base__=Settings, handlers=named)


def schema(model: type[Settings]) -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a configuration file before its variables are replaced.

    A variable may also stand for a number, a boolean or one of a fixed set of words.
    """
    body = model.model_json_schema(schema_generator=_Generator)
    mongodb = body["$defs"]["MongodbSettings"]
    mongodb["required"] = [name for name in mongodb["required"] if name != "uri"]
    mongodb["oneOf"] = [{"required": ["uri"]}, {"required": ["uri_file"]}]
    body["title"] = "Tailrace configuration"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **body}


class _Generator(GenerateJsonSchema):
    """Also allows a variable wherever the schema would allow no free text."""

    def generate_inner(self, schema: CoreSchema) -> JsonSchemaValue:
        made = super().generate_inner(schema)
        if schema["type"] not in ("int", "float", "bool", "literal") or "const" in made:
            return made
        return {"anyOf": [made, {"type": "string", "pattern": r"^\$\{.*\}$"}]}
