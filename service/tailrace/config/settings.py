"""The whole configuration with its smaller sections, and its JSON schema.

Units are in the keys. A relative path is relative to the directory that the process runs in.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import CoreSchema

from tailrace.config.delivery import DeliverySettings, SupervisorSettings
from tailrace.config.fields import (
    Count,
    Name,
    OneOrMore,
    Port,
    Seconds,
    SecondsOrZero,
    Section,
    Text,
    Token,
    Uri,
)
from tailrace.config.handlers import AnyHandler
from tailrace.config.pipeline import PipelineSettings
from tailrace.config.scopes import RouteSettings, ScopeSettings
from tailrace.config.store import AnyStore, SqliteStoreSettings


class MongodbSettings(Section):
    """The server to follow. One of `uri` and `uri_file` is needed."""

    uri: Uri
    """The connection string. Give either this or `uri_file`. Its secrets are masked in all
    output."""

    uri_file: Text | None = None
    """A file that holds the connection string and nothing else, such as a mounted secret."""

    driver: Literal["motor", "pymongo"] = "motor"
    """The driver: Motor, or PyMongo's own asyncio API, which succeeds it."""

    connect_timeout_seconds: Seconds = 10.0
    """How long the start waits for a server before it exits with 1. Raise it for slow members."""


class CheckpointSettings(Section):
    """How often positions are saved."""

    interval_seconds: Seconds = 1.0
    """How often the position is saved while changes arrive, and so how many seconds of changes a
    crash repeats at most. Raise it for a slow disk."""


class ShutdownSettings(Section):
    """What happens after SIGTERM and SIGINT."""

    grace_seconds: SecondsOrZero = 25.0
    """How long events in handlers may take to finish. Closing may take 10 seconds more, and the
    limit of the orchestrator must be longer than both (Kubernetes:
    `terminationGracePeriodSeconds: 45` for 25)."""


class ReplicasSettings(Section):
    """Several processes share the scopes of one store: one follows a scope, the others stand by."""

    lease_seconds: Annotated[Seconds, Field(ge=1)] = 10.0
    """How long a lease lasts, and so how long a scope may wait for its next process after a crash.
    Longer than the store ever needs for an answer."""

    max_scopes: Count | None = None
    """How many scopes this process follows at most; without it, any number."""

    name: Name | None = None
    """What this process is called, in `/status` of the others; by default its host's name and its
    HTTP port. No two processes may have the same."""


class HttpSettings(Section):
    """Metrics, health and status."""

    host: Text = "127.0.0.1"
    """The address to listen on; `0.0.0.0` in a container. Beyond loopback, everybody who reaches it
    may read, and changes need the token."""

    port: Port = 9464
    """The port. 0 takes any free one."""

    liveness_seconds: Seconds = 300.0
    """How long a streaming scope may be without an answer of the server before `/livez` fails. It
    must be longer than elections and maintenance take."""

    token: Token | None = None
    """The bearer token for requests that change something. Without it, only loopback may."""

    token_file: Text | None = None
    """A file that holds the token and nothing else, such as a mounted secret."""

    protect: Literal["changes", "everything"] = "changes"
    """What needs the token: `changes`, or `everything` except the bare status codes of `/livez` and
    `/readyz`. Prometheus and browsers can send one."""

    @field_validator("protect")
    @classmethod
    def _needs_token(cls, protect: str, info: ValidationInfo) -> str:
        if protect == "everything" and info.data.get("token", "invalid") is None:
            raise ValueError("everything needs a token beside it: http.token or token_file")
        return protect


class LoggingSettings(Section):
    """The log, which goes to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is logged."""

    format: Literal["json", "console"] = "json"
    """The form of a line: `json` for machines, `console` for people."""


class Settings(Section):
    """The whole configuration of a Tailrace process."""

    mongodb: MongodbSettings
    """The server to follow: `uri` or `uri_file`."""

    store: AnyStore = Field(default_factory=SqliteStoreSettings)
    """The one place for checkpoints, gaps and dead letters."""

    checkpoint: CheckpointSettings = Field(default_factory=CheckpointSettings)
    """How positions are saved."""

    delivery: DeliverySettings = Field(default_factory=DeliverySettings)
    """The way from the stream to the handlers."""

    supervisor: SupervisorSettings = Field(default_factory=SupervisorSettings)
    """When a failed scope starts again."""

    shutdown: ShutdownSettings = Field(default_factory=ShutdownSettings)
    """How the process ends."""

    replicas: ReplicasSettings | None = None
    """How processes that share the store share the scopes. Without it, this one follows all."""

    http: HttpSettings = Field(default_factory=HttpSettings)
    """The HTTP server for metrics, health and status."""

    logging: LoggingSettings = Field(default_factory=LoggingSettings)
    """The log."""

    pipeline: PipelineSettings = Field(default_factory=PipelineSettings)
    """The Spark job (`tailrace pipeline --config`); the daemon does not read it."""

    scopes: OneOrMore[ScopeSettings]
    """The change streams to follow, at least one."""

    handlers: Mapping[Name, AnyHandler]
    """Where changes go. The keys are the names of the handlers; `type` selects what each does."""

    routes: OneOrMore[RouteSettings]
    """Which changes go to which handlers. Each scope needs at least one route."""

    _deprecations: tuple[str, ...] = PrivateAttr(())

    @property
    def deprecations(self) -> tuple[str, ...]:
        """A warning for each key of the file that another has replaced."""
        return self._deprecations

    def model_post_init(self, warnings: Any) -> None:
        self._deprecations = tuple(warnings or ())


def schema() -> dict[str, Any]:
    """The schema of a configuration file before its variables are put in (draft 2020-12).

    Numbers, booleans and words of a fixed set may also be one interpolation.
    """
    body = Settings.model_json_schema(schema_generator=_Generator)
    mongodb = body["$defs"]["MongodbSettings"]
    mongodb["required"] = [name for name in mongodb["required"] if name != "uri"]
    mongodb["oneOf"] = [{"required": ["uri"]}, {"required": ["uri_file"]}]
    body["title"] = "Tailrace configuration"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **body}


class _Generator(GenerateJsonSchema):
    """Adds interpolation wherever the file would otherwise have to hold no text."""

    def generate_inner(self, schema: CoreSchema) -> JsonSchemaValue:
        made = super().generate_inner(schema)
        if schema["type"] not in ("int", "float", "bool", "literal") or "const" in made:
            return made
        return {"anyOf": [made, {"type": "string", "pattern": r"^\$\{.*\}$"}]}
