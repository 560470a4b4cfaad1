"""What connectors of Kafka Connect share: its own options, and those of its producer."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tailrace.migrate.connection import secret
from tailrace.migrate.conversion import Conversion
from tailrace.migrate.options import PeerOptions

WITHOUT_EFFECT: tuple[str, ...] = (
    r"tasks\.max.*|config\.action\.reload|header\.converter.*|errors\.(log|retry)\..*",
    r"offset\.(storage|flush|commit).*|offsets\.storage\.topic|topic\.creation\.(enable|groups)",
    r"(key|value)\.converter\..*",
)
LOST: Mapping[str, str | tuple[str, str]] = {
    r"transforms.*|predicates.*": "a transformation in Java: see docs/fields.md",
    r"topic\.creation\..*": "how missing topics are created: see 'partitions' and "
    "'replication_factor' of the handler",
    r"errors\.deadletterqueue\..*": "dead letters are in the store: 'tailrace dead-letters list'",
    r"transaction\.boundary.*": "batches are bounded by batch_size and batch_bytes",
}

_JAAS = re.compile(r"\b(username|password)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s;]+))")

_TUNING = (
    r"(key|value)\.(serializer|deserializer)|acks|linger\.ms|batch\.size|buffer\.memory|retries"
    r"|max\.in\.flight.*|max\.block\.ms|delivery\.timeout\.ms|request\.timeout\.ms|client\.id"
    r"|retry\.backoff.*|reconnect\.backoff.*|metadata\.max\.age\.ms|enable\.idempotence|.*buffer.*"
    r"|max\.request\.size|auto\.create\.topics\.enable"
)


def kafka_connect(conversion: Conversion, source: PeerOptions) -> None:
    """Completes the handler ``kafka`` of a connector. Its envelope and topics are there already."""
    client = source.take_under("producer.override.")
    if servers := source.take("bootstrap.servers"):
        client.values.setdefault("bootstrap.servers", servers)
    conversion.handler = {"type": "kafka", **conversion.handler, **kafka(conversion, client)}
    for option, key in (("partitions", "partitions"), ("replication.factor", "replication_factor")):
        if (number := source.take_count(f"topic.creation.default.{option}")) is not None:
            conversion.handler[key] = number
    if source.take("exactly.once.support").lower() == "required":
        conversion.handler["exactly_once"] = True


def without_schemas(source: PeerOptions) -> None:
    """Says that messages have no schemas, unless the converters give them none either."""
    for part in ("key", "value"):
        kind = source.take(f"{part}.converter", "JsonConverter").rpartition(".")[2]
        schemas = source.take_flag(f"{part}.converter.schemas.enable", True)
        if kind != "StringConverter" and (kind != "JsonConverter" or schemas):
            source.lose(
                f"{part}.converter",
                "messages are JSON without schemas, as of JsonConverter with schemas.enable=false",
            )


def transforms(options: PeerOptions, prefix: str, known: str) -> Iterator[str]:
    """Names the transformations as lost, except those of the class ``known``, which it yields."""
    for name in options.take_list(f"{prefix}transforms"):
        under = options.take_under(f"{prefix}transforms.{name}.")
        kind = under.take("type")
        if kind == known:
            yield f"{prefix}transforms.{name}"
        else:
            what = f"{kind or 'it'} is Java code: see 'transform' in docs/fields.md"
            options.lose(f"{prefix}transforms.{name}", what)


def kafka(conversion: Conversion, client: PeerOptions) -> dict[str, Any]:
    """The connection of a handler ``kafka``, from the options of a Kafka client."""
    servers = client.take("bootstrap.servers")
    if not servers:
        conversion.login["KAFKA_BOOTSTRAP_SERVERS"] = "unset:9092"
        client.lose(
            "bootstrap.servers",
            "the file does not name the brokers, which Kafka Connect's workers know: set the "
            "environment variable KAFKA_BOOTSTRAP_SERVERS",
        )
    handler: dict[str, Any] = {"bootstrap_servers": servers or "${KAFKA_BOOTSTRAP_SERVERS}"}
    if protocol := client.take("security.protocol").lower():
        handler["security_protocol"] = protocol
    if mechanism := client.take("sasl.mechanism"):
        handler["sasl_mechanism"] = mechanism
    for name, *values in _JAAS.findall(client.take("sasl.jaas.config")):
        handler[name] = "".join(values)
        if name == "password":
            handler[name] = secret(conversion, "KAFKA_PASSWORD", "".join(values))
    if compression := client.take("compression.type"):
        handler["client"] = {"compression.type": compression}
    reason = "options of Java's client: see 'client' of the handler for those of librdkafka"
    client.lose_rest({".*": reason}, (_TUNING,))
    return handler
