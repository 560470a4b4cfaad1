"""The sinks of Debezium Server: https://debezium.io/documentation/reference/operations/debezium-server.html"""

from collections.abc import Callable, Mapping
from typing import Any

from tailrace.migrate.connection import secret
from tailrace.migrate.conversion import Conversion
from tailrace.migrate.kafka_connect import kafka
from tailrace.migrate.options import PeerOptions

_SUBJECT = "{database}.{collection}"
_NO_COUNTERPART = "the handler has no counterpart"


def sink(conversion: Conversion, server: PeerOptions, envelope: str, source: PeerOptions) -> None:
    """Sets the handler that takes the place of the sink."""
    from tailrace.migrate.debezium import topics

    kind = server.take("debezium.sink.type")
    form = server.take("debezium.format.value", "json").lower()
    server.take("debezium.format.key")
    schemas = server.take_flag("debezium.format.value.schemas.enable", True)
    server.take_flag("debezium.format.schemas.enable", True)
    if form == "cloudevents":
        envelope = "cloudevents"
        server.lose("debezium.format.value", "the data of a CloudEvent is the whole event")
    elif form not in ("json", "jsonbytearray") or schemas:
        server.lose("debezium.format.value", "messages are JSON without schemas")
    names = topics(source)
    make = _SINKS.get(kind)
    options = server.take_under(f"debezium.sink.{kind}.")
    if make is None:
        server.lose(
            "debezium.sink.type",
            f"there is no handler for {kind or 'no sink'}: the file of the handler 'jsonl' stands "
            "for your destination",
        )
        options.lose_rest({".*": "an option of that sink"}, ())
        conversion.handler = conversion.stand_in
        return
    conversion.handler = make(conversion, options, {"envelope": envelope, **names})
    options.lose_rest({".*": _NO_COUNTERPART}, ())


def _kafka(
    conversion: Conversion, options: PeerOptions, common: Mapping[str, Any]
) -> dict[str, Any]:
    return {"type": "kafka", **common, **kafka(conversion, options.take_under("producer."))}


def _stream(common: Mapping[str, Any]) -> str:
    """The name of a topic as a subject or stream, which has no placeholder for the prefix."""
    topic = str(common.get("topic", "{prefix}.{database}.{collection}"))
    return topic.replace("{prefix}", str(common["prefix"]))


def _nats(
    conversion: Conversion, options: PeerOptions, common: Mapping[str, Any]
) -> dict[str, Any]:
    handler: dict[str, Any] = {"type": "nats", "envelope": common["envelope"]}
    handler["servers"] = options.take_list("url") or ["nats://127.0.0.1:4222"]
    handler["subject"] = _stream(common)
    if options.take_flag("create-stream", False):
        handler |= {"stream": "DebeziumStream", "create_stream": True}
        options.take("subjects")
    if user := options.take("auth.user"):
        password = secret(conversion, "NATS_PASSWORD", options.take("auth.password"))
        handler |= {"user": user, "password": password}
    options.take("async.enabled")
    return handler


def _redis(
    conversion: Conversion, options: PeerOptions, common: Mapping[str, Any]
) -> dict[str, Any]:
    scheme = "rediss" if options.take_flag("ssl.enabled", False) else "redis"
    user, password = options.take("user"), options.take("password")
    if password:
        password = ":" + secret(conversion, "REDIS_PASSWORD", password)
    who = f"{user}{password}@" if user or password else ""
    address, database = options.take("address", "127.0.0.1:6379"), options.take("db.index")
    url = f"{scheme}://{who}{address}" + (f"/{database}" if database else "")
    for name in list(options.values):
        if name.startswith(("retry.", "wait.", "connection.", "socket.", "batch.", "buffer.")):
            options.take(name)
    options.lose("message.format", "the fields of an entry are those of docs/destinations/redis.md")
    options.take("message.format")
    stream = _stream(common)
    return {"type": "redis", "envelope": common["envelope"], "url": url, "stream": stream}


def _http(
    conversion: Conversion, options: PeerOptions, common: Mapping[str, Any]
) -> dict[str, Any]:
    handler: dict[str, Any] = {"type": "http", "envelope": common["envelope"]}
    handler["url"] = options.take("url") or "${HTTP_URL}"
    if (milliseconds := options.take_count("timeout.ms")) is not None:
        handler["timeout_seconds"] = milliseconds / 1000
    if options.values.get("authentication.type") == "standard-webhooks":
        options.take("authentication.type")
        value = options.take("authentication.webhook.secret")
        handler["secret"] = secret(conversion, "HTTP_SECRET", value)
    for name in ("retries", "retry.interval.ms", "headers.encode.base64"):
        options.take(name)
    return handler


_Make = Callable[[Conversion, PeerOptions, Mapping[str, Any]], dict[str, Any]]
_SINKS: Mapping[str, _Make] = {
    "kafka": _kafka,
    "nats-jetstream": _nats,
    "redis": _redis,
    "http": _http,
}
