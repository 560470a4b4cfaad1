"""Redpanda Connect with the input ``mongodb_cdc``:
https://docs.redpanda.com/connect/components/inputs/mongodb_cdc/

It follows one database, and leaves other collections out by ``$match`` on ``ns.coll``.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tailrace.migrate.connection import connect, secret
from tailrace.migrate.conversion import Conversion
from tailrace.migrate.namespaces import Selection
from tailrace.migrate.options import PeerOptions, refuse
from tailrace.migrate.peer_file import ours, yaml

_INPUT = "input.mongodb_cdc."
_OF_COLLECTION = re.compile(r"\$\{!\s*(?:meta(?:data)?\(\"collection\"\)|@\.?collection)\s*\}")
_INTERPOLATED = re.compile(r"\$\{![^}]*\}")

_WITHOUT_EFFECT = (
    r"(input|output)\.label|(http|logger|metrics|tracer|cache_resources|redpanda)(\..*)?",
    r"shutdown_(delay|timeout)|pipeline\.threads|output\..*\.(batching|max_in_flight|timeout).*",
    r"output\..*\.(metadata|backoff|max_retries|retry|idempotent|ack_replicas|client_id|partition).*",
)
_LOST: Mapping[str, str | tuple[str, str]] = {
    r".*processors": "Bloblang and other processors: see 'transform' in docs/fields.md",
    r".*_resources.*": "resources are not carried over",
    r"output\..*\.key": "the key of a message is _id",
    r"output\..*": "the handler has no counterpart",
    r"buffer.*": ("none", "changes wait in the oplog, and in memory up to max_in_flight_bytes"),
}


def read(file: str) -> Conversion:
    """The conversion of a file. Raises :class:`ConfigurationError`."""
    document = yaml(file)
    values = dict(_flat(document, "")) if isinstance(document, Mapping) else {}
    options = PeerOptions(values)
    source = options.take_under(_INPUT)
    if not source.values:
        inputs = document.get("input") if isinstance(document, Mapping) else None
        others = ", ".join(map(str, inputs)) if isinstance(inputs, Mapping) else "none"
        refuse(file, f"only the input mongodb_cdc can be migrated; the file has: {others}")
    database = source.take("database")
    label = options.values.get("input.label", "").strip()
    conversion = Conversion("redpanda", options, label or database or "redpanda")
    conversion.database = database
    names = [f"{database}.{name}" for name in source.take_list("collections")]
    conversion.selection = Selection(collections=names, literal=True)
    user, password = source.take("username"), source.take("password")
    connect(conversion, source.take("url"), user, password, {})
    canonical = source.take("json_marshal_mode", "canonical") == "canonical"
    _documents(conversion, source)
    _output(conversion, options, {"json": "canonical"} if canonical else {})
    source.lose_rest({}, (r"checkpoint_.*|read_.*|app_name|auto_replay_nacks|snapshot_auto_.*",))
    options.lose_rest(_LOST, _WITHOUT_EFFECT)
    return conversion


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """The options by their dotted names. A list of texts is joined by commas."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        plain = not any(isinstance(item, dict | list) for item in value)
        text = ",".join(map(str, value)) if plain else json.dumps(value, default=str)
        yield name, ours(_OF_COLLECTION.sub("{collection}", text))
    elif value is not None:
        text = json.dumps(value) if isinstance(value, bool) else str(value)
        yield name, ours(_OF_COLLECTION.sub("{collection}", text))


def _documents(conversion: Conversion, source: PeerOptions) -> None:
    match source.take("document_mode", "update_lookup"):
        case "update_lookup":
            conversion.scope["full_document"] = "lookup"
        case "pre_and_post_images":
            conversion.scope["full_document"] = "required"
            conversion.scope["full_document_before_change"] = "required"
        case "partial_update":
            source.lose("document_mode", "an update has updateDescription, and no operations")
    if source.take_flag("stream_snapshot", False):
        conversion.snapshot = {"mode": "initial"}
        if (source.take_count("snapshot_parallelism") or 1) > 1:
            conversion.snapshot["parallel"] = 2
    source.take("snapshot_parallelism")


def _output(conversion: Conversion, options: PeerOptions, common: Mapping[str, Any]) -> None:
    """Sets the handler that takes the place of the output."""
    for kind, make in _OUTPUTS.items():
        output = options.take_under(f"output.{kind}.")
        if not output.values:
            continue
        is_kafka = make is _kafka
        envelope = "document" if is_kafka and "full_document" in conversion.scope else "native"
        conversion.handler = {**make(conversion, output), "envelope": envelope, **common}
        output.lose(
            "metadata",
            "a delete is a message with a key and without a value (envelope: document)"
            if envelope == "document"
            else "a message is the whole event, and not the document alone (envelope: native)",
        )
        options.values |= {f"output.{kind}.{name}": text for name, text in output.values.items()}
        return
    names = {name.split(".")[1] for name in options.values if name.startswith("output.")} - {
        "label"
    }
    options.lose(
        "output",
        f"there is no handler for {', '.join(sorted(names)) or 'no output'}: the file of the "
        "handler 'jsonl' stands for your destination",
    )
    conversion.handler = conversion.stand_in


def _name(output: PeerOptions, name: str) -> str:
    """The name of a topic, subject or stream, with the placeholder of the collection at most."""
    text = output.take(name, "{collection}")
    if _INTERPOLATED.search(text.replace("$${", "${")):
        output.lose(name, f"{text!r} has an interpolation that is not carried over")
        return "{database}.{collection}"
    return text


def _kafka(conversion: Conversion, output: PeerOptions) -> dict[str, Any]:
    servers = ",".join(output.take_list("seed_brokers") or output.take_list("addresses"))
    handler: dict[str, Any] = {"type": "kafka", "topic": _name(output, "topic")}
    handler["bootstrap_servers"] = servers or "localhost:9092"
    tls = output.take_flag("tls.enabled", False)
    try:
        [login] = json.loads(output.take("sasl", "[{}]"))
    except ValueError:
        login = {}
    if mechanism := login.get("mechanism") or output.take("sasl.mechanism"):
        user = login.get("username") or output.take("sasl.user")
        password = login.get("password") or output.take("sasl.password")
        handler |= {"sasl_mechanism": mechanism, "username": user}
        handler["password"] = secret(conversion, "KAFKA_PASSWORD", password)
    if tls or mechanism:
        handler["security_protocol"] = "_".join(
            filter(None, ("sasl" if mechanism else "", "ssl" if tls else "plaintext"))
        )
    if compression := output.take("compression"):
        handler["client"] = {"compression.type": compression}
    return handler


def _nats(conversion: Conversion, output: PeerOptions) -> dict[str, Any]:
    return {
        "type": "nats",
        "servers": output.take_list("urls"),
        "subject": _name(output, "subject"),
    }


def _redis(conversion: Conversion, output: PeerOptions) -> dict[str, Any]:
    handler: dict[str, Any] = {
        "type": "redis",
        "url": output.take("url"),
        "stream": _name(output, "stream"),
    }
    if (length := output.take_count("max_length")) is not None:
        handler["max_length"] = length
    return handler


def _http(conversion: Conversion, output: PeerOptions) -> dict[str, Any]:
    handler: dict[str, Any] = {
        "type": "http",
        "url": output.take("url"),
        "method": output.take("verb", "POST"),
    }
    if headers := output.take_under("headers.").values:
        handler["headers"] = headers
    return handler


_Make = Callable[[Conversion, PeerOptions], dict[str, Any]]
_OUTPUTS: Mapping[str, _Make] = {
    "kafka_franz": _kafka,
    "redpanda": _kafka,
    "kafka": _kafka,
    "nats_jetstream": _nats,
    "redis_streams": _redis,
    "http_client": _http,
}
