"""The keys of a handler of ``type: kafka``."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, PlainSerializer, model_validator

from tailrace.destination import MessageHandlerSettings, NameTemplate, SecretText
from tailrace.destination.secret import MASK, keep_secret
from tailrace.destination.settings import Bytes, Count, Flag, Seconds, Text, like

OWN_OPTIONS: Mapping[str, str] = {
    "bootstrap.servers": "bootstrap_servers",
    "metadata.broker.list": "bootstrap_servers",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "username",
    "sasl.password": "password",
    "ssl.ca.location": "ssl_ca_location",
    "message.max.bytes": "max_message_bytes",
    "transaction.timeout.ms": "transaction_timeout_seconds",
    "transactional.id": "exactly_once",
    "isolation.level": "exactly_once",
    **dict.fromkeys(
        (
            "acks",
            "request.required.acks",
            "enable.idempotence",
            "enable.gapless.guarantee",
            "max.in.flight",
            "max.in.flight.requests.per.connection",
            "retries",
            "message.send.max.retries",
            "message.timeout.ms",
            "delivery.timeout.ms",
            "partitioner",
            "allow.auto.create.topics",
            "delivery.report.only.error",
            "queue.buffering.max.messages",
            "queue.buffering.max.kbytes",
        ),
        "",
    ),
}
"""librdkafka's options that Tailrace sets, and the key that sets each; empty: always the same."""


def is_secret(option: str) -> bool:
    """Whether the value of an option of librdkafka must not be shown."""
    return "password" in option or "secret" in option


def _client(given: Mapping[str, Any]) -> Mapping[str, Any]:
    for option, value in given.items():
        if option in OWN_OPTIONS:
            key = OWN_OPTIONS[option]
            instead = f"use the key {key}" if key else "order and delivery depend on it"
            raise ValueError(f"{option} is set by Tailrace: {instead}")
        if is_secret(option):
            keep_secret(str(value))
    return given


_ClientOptions = Annotated[
    Mapping[str, str | int | float | bool],
    AfterValidator(_client),
    PlainSerializer(
        lambda given: {name: MASK if is_secret(name) else value for name, value in given.items()}
    ),
]
_Topic = Annotated[
    str,
    like(
        r"(?!\.\.?\Z)[A-Za-z0-9._-]{1,249}",
        "must be the name of a topic: at most 249 letters, digits, '.', '_' and '-'",
    ),
]


class KafkaHandlerSettings(MessageHandlerSettings):
    """Sends a message to a topic of Apache Kafka for each event. Needs the extra `kafka`."""

    type: Literal["kafka"]
    """Selects this handler."""

    bootstrap_servers: Text
    """Brokers to ask first, as `host:port`, separated by commas."""

    topic: NameTemplate = "{prefix}.{database}.{collection}"  # type: ignore[assignment]
    """The topic of an event: a text with `{prefix}`, `{database}`, `{collection}`, `{scope}`. Other
    characters than letters, digits, `.`, `_` and `-` become `_`; events of two collections whose
    names differ only there are refused."""

    prefix: Text | None = None
    """The text for `{prefix}` in `topic`. Required if `topic` has it."""

    exactly_once: Flag = False
    """Sends each change once: every batch is a transaction that holds the position, too. Consumers
    must read with `isolation.level=read_committed`."""

    positions_topic: _Topic = "tailrace-positions"
    """With `exactly_once`, the compacted topic of one partition that holds the positions. Its name
    is also the first part of the transactional ids: give each installation of Tailrace that shares
    a Kafka cluster and names of scopes and handlers with another one a topic of its own."""

    transaction_timeout_seconds: Seconds = 60.0
    """With `exactly_once`, how long the broker keeps a transaction open whose process is gone."""

    tombstones: Flag = True
    """Whether a message without a value follows the message of a delete, so that a compacted topic
    forgets the key. With `envelope: document` a delete is such a message itself."""

    headers: Flag = True
    """Whether messages have the headers `tailrace.operation`, `tailrace.event_id`,
    `tailrace.namespace` and `tailrace.scope`. Messages of `envelope: cloudevents` have those of its
    Kafka binding instead, always."""

    content_mode: Literal["structured", "binary"] = "structured"
    """Whether the attributes of `envelope: cloudevents` are in the value, or in headers `ce_…`."""

    ddl_topic: _Topic | None = None
    """A topic for events that are not about a document (`drop`, `rename`, `snapshotEnd`, …), as
    messages without a key. They are not sent without it. Needs `envelope` `native` or
    `cloudevents`."""

    create_topics: Flag = True
    """Whether missing topics are created. Otherwise the handler waits until they exist."""

    partitions: Count | None = None
    """How many partitions a created topic has. Without it, the broker's `num.partitions`."""

    replication_factor: Count | None = None
    """How many replicas a created topic has. Without it, the broker's
    `default.replication.factor`."""

    max_message_bytes: Bytes = 1_000_000
    """The largest message: key, value and headers. Not above `max.message.bytes` of the topics."""

    on_oversize: Literal["refuse", "leave_out"] = "refuse"
    """What happens to an event whose message is larger: `refuse` makes it a dead letter (or halts
    the scope, by `on_failure`), `leave_out` logs it as `event.left_out` and goes on."""

    timeout_seconds: Seconds = 5.0
    """How long the brokers may take to confirm a batch, and with `exactly_once`, how long they may
    confirm nothing of it. Then it is an outage, not a failed attempt, and the batch is sent again:
    without `exactly_once` messages may come twice. Keep it well above 1 s, which a new producer may
    take, and below `replicas.lease_seconds`."""

    security_protocol: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = "plaintext"
    """How to connect to the brokers."""

    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"] | None = None
    """How to log in, with `security_protocol` `sasl_plaintext` or `sasl_ssl`."""

    username: Text | None = None
    """The user, for `PLAIN` and `SCRAM`."""

    password: SecretText | None = None
    """The user's password, or `{file: PATH}`, which is read again after a failed login."""

    ssl_ca_location: Text | None = None
    """A file of certificates of authorities to trust. Without it, those of the system."""

    client: _ClientOptions = Field(default_factory=dict)
    """Further options of librdkafka, such as `compression.type: zstd` or `ssl.key.location: PATH`,
    except those that Tailrace sets."""

    @property
    def needs_documents(self) -> bool:
        """Of an update without its document, the envelope `document` has no message."""
        return self.envelope == "document" or super().needs_documents

    @property
    def attempt_seconds(self) -> float | None:
        """Calls end by themselves."""
        return None

    @model_validator(mode="after")
    def _require_consistency(self) -> Self:
        if "{prefix}" in self.topic.text and self.prefix is None:
            raise ValueError("topic has {prefix}: set prefix, or another topic")
        if self.ddl_topic is not None and self.envelope not in ("native", "cloudevents"):
            raise ValueError(f"ddl_topic: envelope {self.envelope} has no form for such events")
        sasl = self.security_protocol.startswith("sasl")
        if sasl and self.sasl_mechanism is None:
            raise ValueError(f"security_protocol {self.security_protocol} needs sasl_mechanism")
        if not sasl and (self.sasl_mechanism or self.username or self.password):
            raise ValueError(
                "sasl_mechanism, username and password need security_protocol sasl_ssl (or "
                "sasl_plaintext)"
            )
        if sasl and self.sasl_mechanism != "GSSAPI" and not (self.username and self.password):
            raise ValueError(f"sasl_mechanism {self.sasl_mechanism} needs username and password")
        return self
