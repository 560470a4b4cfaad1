"""MongoDB's own source connector for Kafka Connect.

The names and defaults of options are those of mongo-kafka-connect 2.0 (``MongoSourceConfig``), and
the names of topics those of its ``DefaultTopicMapper``.
"""

from datetime import UTC, datetime
from typing import Any

from bson.timestamp import Timestamp

from tailrace.migrate.connection import connect
from tailrace.migrate.conversion import Conversion
from tailrace.migrate.kafka_connect import LOST, WITHOUT_EFFECT, kafka_connect, transforms
from tailrace.migrate.options import PeerOptions, refuse
from tailrace.migrate.peer_file import connector
from tailrace.migrate.stages import stages_of, value_of

_CLASS = "com.mongodb.kafka.connect.MongoSourceConnector"
_FORMATS = {"ExtendedJson": "canonical"}

_WITHOUT_EFFECT = (
    r"connector\.class|poll\.max\.batch\.size|heartbeat\.topic\.name|provider|offset\..*",
    r"(startup\.mode\.)?copy\.existing\.(queue\.size|allow\.disk\.use)|mongo\.errors\.log\.enable",
    r"(key|value)\.converter|output\.(schema|format)\.key",
)
_LOST: dict[str, str | tuple[str, str]] = {
    r"heartbeat\.interval\.ms": ("0", "the position of an idle stream is saved anyway"),
    r"connection\.ssl\..*": (
        "[hidden]",
        "a Java keystore: convert it to PEM, and name it in "
        "mongodb.uri (tlsCertificateKeyFile, tlsCAFile)",
    ),
    r"server\.api\..*": ("false", "Tailrace sends no server API version"),
    r"output\.schema\..*": ("false", "messages have no schemas"),
    r"(startup\.mode\.)?copy\.existing\.namespace\.regex": "a snapshot reads all collections of "
    "the scope: name those that you want in routes[0].namespaces",
    r"topic\.mapper": "Java code: see 'topic' of the handler",
    r"mongo\.errors\.deadletterqueue\..*": "dead letters are in the store: 'tailrace dead-letters "
    "list'",
}


def read(file: str) -> Conversion:
    """The conversion of a file. Raises :class:`ConfigurationError`."""
    source = PeerOptions(connector(file))
    found = source.values.get("connector.class", "").strip()
    if found.rpartition(".")[2] != "MongoSourceConnector":
        what = f"connector.class is {found}" if found else "there is no connector.class"
        refuse(file, f"{what}; only {_CLASS} can be migrated with --from mongo-kafka")
    own = source.take("name")
    conversion = Conversion("mongo-kafka", source, own or "mongo-kafka", offsets_name=own)
    if partition := source.take("offset.partition.name"):
        conversion.key = {"ns": partition}
    connect(conversion, source.take("connection.uri"), "", "", {})
    conversion.database = source.take("database")
    conversion.collection = source.take("collection")
    _stream(conversion, source)
    _start(conversion, source)
    _messages(conversion, source)
    _topics(conversion, source)
    kafka_connect(conversion, source)
    for _ in transforms(source, "", ""):
        pass
    tolerance = source.take("mongo.errors.tolerance", source.take("errors.tolerance")).lower()
    if tolerance == "none":
        conversion.delivery["on_failure"] = "halt"
    elif tolerance:
        source.lose(
            "errors.tolerance", "an event that fails becomes a dead letter: none is skipped"
        )
    source.lose_rest({**LOST, **_LOST}, WITHOUT_EFFECT + _WITHOUT_EFFECT)
    return conversion


def _stream(conversion: Conversion, source: PeerOptions) -> None:
    scope = conversion.scope
    conversion.pipeline = stages_of(source, "pipeline")
    whole = source.take_flag("publish.full.document.only", False)
    full = source.take("change.stream.full.document", "updateLookup" if whole else "")
    if full and full != "default":
        scope["full_document"] = "lookup" if full == "updateLookup" else full
    before = source.take("change.stream.full.document.before.change")
    if before and before not in ("default", "off"):
        scope["full_document_before_change"] = before
    if source.take_flag("change.stream.show.expanded.events", False):
        scope["show_expanded_events"] = True
    if (collation := value_of(source, "collation")) is not None:
        scope["collation"] = collation
    if (size := source.take_count("batch.size")) is not None:
        scope["batch_size"] = size
    if (wait := source.take_count("poll.await.time.ms")) is not None:
        scope["max_await_time_ms"] = wait
    conversion.handler = {"envelope": "document" if whole else "native"}
    tombstones = source.take_flag("publish.full.document.only.tombstone.on.delete", False)
    if whole and not tombstones:
        conversion.pipeline.append({"$match": {"operationType": {"$ne": "delete"}}})


def _start(conversion: Conversion, source: PeerOptions) -> None:
    copies = source.take_flag("copy.existing", False)
    mode = source.take("startup.mode", "copy_existing" if copies else "latest").lower()
    at, new = "startup.mode.timestamp.start.at.operation.time", "startup.mode.copy.existing."
    started = source.take(at)
    filters = stages_of(source, f"{new}pipeline") or stages_of(source, "copy.existing.pipeline")
    threads = source.take_count(f"{new}max.threads") or source.take_count(
        "copy.existing.max.threads"
    )
    source.take("copy.existing.max.threads")
    if mode == "timestamp" and started:
        if (time := _time(started)) is None:
            source.lose(at, f"{started!r} is no time that is understood: set start_at of the scope")
        else:
            conversion.scope["start_at"] = time
    if mode != "copy_existing":
        return
    conversion.snapshot = {"mode": "initial"}
    if threads is not None and threads > 1:
        conversion.snapshot["parallel"] = 2
    if len(filters) == 1 and filters[0].keys() == {"$match"}:
        conversion.snapshot["filter"] = filters[0]["$match"]
    elif filters:
        source.lose(f"{new}pipeline", "rows of a snapshot pass one $match at most: snapshot.filter")


def _time(text: str) -> str | None:
    """A time that the connector understands, in our form: to the second, and so a little early."""
    from bson import json_util

    try:
        value: Any = json_util.loads(text)
    except (ValueError, TypeError):
        value = text
    try:
        if isinstance(value, Timestamp):
            value = value.time
        if isinstance(value, int):
            return datetime.fromtimestamp(value, UTC).isoformat()
        return datetime.fromisoformat(str(value)).astimezone(UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None


def _messages(conversion: Conversion, source: PeerOptions) -> None:
    """Keys and values."""
    form = source.take("output.format.value", "json").lower()
    formatter = source.take("output.json.formatter", "DefaultJson").rpartition(".")[2]
    if formatter in _FORMATS:
        conversion.handler["json"] = _FORMATS[formatter]
    else:
        source.lose(
            "output.json.formatter",
            f"values are relaxed Extended JSON v2, and not as {formatter} writes them",
        )
    if form != "json":
        source.lose("output.format.value", f"values are Extended JSON, and not {form}")
    source.take("output.format.key")
    by_token = not source.take_flag("change.stream.document.key.as.key", True)
    source.lose(
        "change.stream.document.key.as.key" if by_token else "output.format.key",
        "the key of a message is _id as canonical Extended JSON, and not the "
        + ("resume token" if by_token else "document {_id: …}")
        + ": partitions of a topic may change",
    )


def _topics(conversion: Conversion, source: PeerOptions) -> None:
    prefix, suffix = source.take("topic.prefix"), source.take("topic.suffix")
    separator = source.take("topic.separator", ".")

    def topic(*names: str) -> str:
        return separator.join(filter(None, (prefix, *names, suffix)))

    conversion.handler["topic"] = topic("{database}", "{collection}")
    if source.values.get("topic.mapper", "").endswith("DefaultTopicMapper"):
        source.take("topic.mapper")
    names = value_of(source, "topic.namespace.map") or {}
    if not isinstance(names, dict):
        source.lose("topic.namespace.map", "is no mapping of namespaces to topics")
        return
    for namespace, name in names.items():
        if namespace == "*" and len(names) == 1:
            conversion.handler["topic"] = topic(str(name))
        elif "." in namespace and not namespace.startswith("/"):
            conversion.topics[namespace] = topic(str(name))
        else:
            source.lose("topic.namespace.map", f"{namespace} has no topic of its own: {name}")
