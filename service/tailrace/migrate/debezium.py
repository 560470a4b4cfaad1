"""Debezium's connector for MongoDB: as a connector of Kafka Connect, in Debezium Server, or in the
embedded engine.

The names and defaults of options are those of Debezium 3.6 (``MongoDbConnectorConfig``); what a
change stream is opened with there: ``MongoUtils.openChangeStream`` and
``ChangeStreamPipelineFactory``.
"""

from datetime import UTC, datetime
from typing import Any

from tailrace.migrate.connection import connect
from tailrace.migrate.conversion import Conversion, FieldRule
from tailrace.migrate.debezium_server import sink
from tailrace.migrate.kafka_connect import (
    LOST,
    WITHOUT_EFFECT,
    kafka_connect,
    transforms,
    without_schemas,
)
from tailrace.migrate.namespaces import Selection
from tailrace.migrate.options import PeerOptions, refuse
from tailrace.migrate.peer_file import connector
from tailrace.migrate.stages import stages_of

_CLASS = "io.debezium.connector.mongodb.MongoDbConnector"
_FORMER = {
    "mongodb.name": "topic.prefix",
    "database.whitelist": "database.include.list",
    "database.blacklist": "database.exclude.list",
    "collection.whitelist": "collection.include.list",
    "collection.blacklist": "collection.exclude.list",
    "field.blacklist": "field.exclude.list",
}
"""Names of options before Debezium 2.0, and what they are called now."""

_SERVER, _SINK = "debezium.source.", "debezium.sink.type"
_UNWRAP = "io.debezium.connector.mongodb.transforms.ExtractNewDocumentState"

_WITHOUT_EFFECT = (
    r"(mongodb|connection)\..*(timeout|frequency|interval)\.ms",
    r"max\.(batch|queue)\.size.*|poll\.interval\.ms|errors\.max\.retries|retriable\..*",
    r"snapshot\.(fetch\.size|delay\.ms|max\.threads\.multiplier)|streaming\.delay\.ms",
    r"record\.processing\..*|task\..*",
    r"internal\.implementation|internal\.log.*|internal\.advanced.*|statistics\..*|guardrail\..*",
    r"(internal\.)?legacy\.snapshot.*|executor\..*|custom\.(metric\.tags|sanitize\.pattern)",
    r"sourceinfo\.struct\.maker|debezium\.embedded\..*|signal\.poll\..*|connector\.class",
    r"schema\.name\.adjustment\.mode|field\.name\.adjustment\.mode",
    r"heartbeat\.topics\.prefix|openlineage\.integration\.(?!enabled).*",
    r"(schema|database)\.history\..*|mongodb\.(members|connection\.mode).*",
    r"incremental\.snapshot\..*|notification\.sink\..*|transaction\.metadata\.factory",
)
_SIGNALS = "the daemon takes requests instead: 'tailrace snapshot start', 'tailrace scopes pause'"
_LOST: dict[str, str | tuple[str, str]] = {
    r"signal\..*": _SIGNALS,
    r"heartbeat\..*": ("0", "the position of an idle stream is saved anyway; no messages tell it"),
    r"notification\..*": "the state is in /status, the metrics and the log",
    r"provide\.transaction\.metadata": (
        "false",
        "no topic has the bounds of transactions: see the scope's 'transactions'",
    ),
    r"openlineage\..*": ("false", "Tailrace sends nothing to OpenLineage"),
    r"extended\.headers\..*": ("false", "messages have Tailrace's own headers"),
    r"converters.*|post\.processors.*": "Java code: see 'transform' in docs/fields.md",
    r"mongodb\.ssl\.(key|trust)store.*": "a Java keystore: convert it to PEM, and name it in "
    "mongodb.uri (tlsCertificateKeyFile, tlsCAFile)",
    r"mongodb\.(multi\.task|task|authentication).*": "Tailrace has no counterpart",
    r"(internal\.)?mongodb\.allow.*": ("false", "Tailrace has no counterpart"),
    r"topic\.naming\.strategy": "see 'topic' of the handler",
    r"snapshot\..*": "rows are selected by snapshot.filter, for all collections of a scope",
}


def read(file: str) -> Conversion:
    """The conversion of a file. Raises :class:`ConfigurationError`."""
    values = connector(file)
    server = PeerOptions(values)
    source = server.take_under(_SERVER) if _is_server(values) else server
    found = source.values.get("connector.class", "").strip()
    if found.rpartition(".")[2] != "MongoDbConnector":
        what = f"connector.class is {found}" if found else "there is no connector.class"
        refuse(file, f"{what}; only {_CLASS} can be migrated with --from debezium")
    for name in source.values.keys() & _FORMER.keys():
        source.values.setdefault(_FORMER[name], source.values.pop(name))
    prefix = source.values.get("topic.prefix", "").strip()
    own = source.take("name")
    conversion = Conversion("debezium", source, own or prefix or "debezium", offsets_name=own)
    conversion.key = {"server_id": prefix} if prefix else {}
    is_engine = any(key.startswith("offset.storage") for key in source.values)
    _connection(conversion, source)
    _collections(conversion, source, file)
    _documents(conversion, source)
    _snapshot(conversion, source)
    _failures(conversion, source)
    server.lost = source.lost
    envelope = _envelope(server, "debezium." if server is not source else "")
    if server is not source:
        sink(conversion, server, envelope, source)
    elif is_engine:
        _engine(conversion, source)
    else:
        conversion.handler = {"envelope": envelope, **topics(source)}
        kafka_connect(conversion, source)
        without_schemas(source)
    source.lose_rest({**LOST, **_LOST}, WITHOUT_EFFECT + _WITHOUT_EFFECT)
    server.lose_rest({}, (r"quarkus\..*", r"debezium\.format\..*"))
    return conversion


def _is_server(values: dict[str, str]) -> bool:
    return _SINK in values or any(name.startswith(_SERVER) for name in values)


def _connection(conversion: Conversion, source: PeerOptions) -> None:
    query = {}
    if source.take_flag("mongodb.ssl.enabled", False):
        query["tls"] = "true"
    if source.take_flag("mongodb.ssl.invalid.hostname.allowed", False):
        query["tlsAllowInvalidHostnames"] = "true"
    user, password = source.take("mongodb.user"), source.take("mongodb.password")
    authority = source.take("mongodb.authsource", "admin" if user else "")
    query |= {"authSource": authority} if user else {}
    members, hosts = source.take("mongodb.hosts"), ""
    if members:  # before Debezium 2.2: rs0/a:27017,b:27017
        name, _, hosts = members.rpartition("/")
        query |= {"replicaSet": name}
    uri = source.take("mongodb.connection.string", f"mongodb://{hosts}" if hosts else "")
    connect(conversion, uri, user, password, query)


def _collections(conversion: Conversion, source: PeerOptions, file: str) -> None:
    conversion.selection = Selection(
        source.take_list("database.include.list"),
        source.take_list("database.exclude.list"),
        source.take_list("collection.include.list"),
        source.take_list("collection.exclude.list"),
        literal=source.take("filters.match.mode", "regex").lower() == "literal",
    )
    selection = conversion.selection
    if not (selection.literal or selection.is_everything or selection.namespaces() is None):
        source.lose(
            "collection.include.list" if selection.collections else "database.include.list",
            "names are compared with regard to case, and not without, as Debezium does",
        )
    scope, target = source.take("capture.scope", "deployment"), source.take("capture.target")
    if scope.lower() != "deployment":
        database, _, collection = target.partition(".")
        conversion.database = database
        conversion.collection = collection if scope.lower() == "collection" else ""
        if not database or (scope.lower() == "collection" and not collection):
            refuse(file, f"capture.target: names no {scope.lower()}")
    skipped = source.take_list("skipped.operations")
    names = {"c": ["insert"], "u": ["update", "replace"], "d": ["delete"]}
    if left_out := [name for letter in skipped for name in names.get(letter, [])]:
        conversion.pipeline.append({"$match": {"operationType": {"$nin": left_out}}})
    order = source.take("cursor.pipeline.order", "internal_first").lower()
    if stages := stages_of(source, "cursor.pipeline"):
        conversion.stages_first = order != "internal_first"
        own = conversion.pipeline
        conversion.pipeline = stages + own if conversion.stages_first else own + stages
    for option in ("field.exclude.list", "field.renames"):
        for text in source.take_list(option):
            path, _, new_name = text.partition(":")
            parts = path.split(".", 2)
            if len(parts) < 3 or (option == "field.renames" and not new_name):
                source.lose(option, f"{text!r} is not the path of a field of a collection")
                continue
            namespace, name = f"{parts[0]}.{parts[1]}", new_name.rpartition(".")[2]
            conversion.rules.append(FieldRule(option, namespace, parts[2], name))


def _documents(conversion: Conversion, source: PeerOptions) -> None:
    """The documents of changes, and the size of events and replies."""
    mode = source.take("capture.mode", "change_streams_update_full").lower()
    full = source.take("capture.mode.full.update.type", "lookup").lower()
    before = source.take("capture.mode.pre.image", "when_available").lower()
    if "update_full" in mode:
        images = {"lookup": "lookup", "post_image_required": "required"}
        conversion.scope["full_document"] = images.get(full, "whenAvailable")
    if mode.endswith("with_pre_image"):
        image = "required" if before == "required" else "whenAvailable"
        conversion.scope["full_document_before_change"] = image
    if (wait := source.take_count("cursor.max.await.time.ms")) is not None:
        conversion.scope["max_await_time_ms"] = wait
    if (size := source.take_count("query.fetch.size")) is not None:
        conversion.scope["batch_size"] = size
    match source.take("cursor.oversize.handling.mode", "fail").lower():
        case "split":
            conversion.scope["split_large_events"] = True
        case "skip":
            source.lose(
                "cursor.oversize.handling.mode",
                "an event of more than 16 MB halts the scope, and can be skipped alone: see "
                "docs/operations.md",
            )
    source.take("cursor.oversize.skip.threshold")


def _snapshot(conversion: Conversion, source: PeerOptions) -> None:
    mode = source.take("snapshot.mode", "initial").lower()
    start = source.take_count("capture.start.op.time")
    threads = source.take_count("snapshot.max.threads")
    if mode in ("initial", "always", "initial_only", "when_needed"):
        conversion.snapshot = {"mode": "initial"}
        if threads is not None and threads > 1:
            conversion.snapshot["parallel"] = min(threads, 2)
            if threads > 2:
                source.lose("snapshot.max.threads", "2: more need delivery.max_in_flight_bytes")
    if mode == "when_needed":
        conversion.scope["on_history_lost"] = "snapshot"
    elif mode not in ("initial", "no_data", "never"):
        why = {
            "always": "a snapshot is taken once; each further one by 'tailrace snapshot start'",
            "initial_only": "the changes after the snapshot are followed, too",
        }
        source.lose("snapshot.mode", why.get(mode, f"{mode} has no counterpart: snapshot: never"))
    if start:  # a BSON timestamp as a number: 32 bits of seconds come first
        conversion.scope["start_at"] = datetime.fromtimestamp(start >> 32, UTC).isoformat()


def _failures(conversion: Conversion, source: PeerOptions) -> None:
    option, tolerance = "event.processing.failure.handling.mode", source.take("errors.tolerance")
    mode = source.take(option).lower()
    if mode == "fail" or (tolerance.lower() == "none" and not mode):
        conversion.delivery["on_failure"] = "halt"
    elif mode:
        source.lose(option, "an event that a handler cannot handle becomes a dead letter")


def _envelope(options: PeerOptions, prefix: str) -> str:
    """The envelope of messages. ``prefix``: before the names of transformations."""
    for name in transforms(options, prefix, _UNWRAP):
        options.lose(
            name,
            "messages are documents in relaxed Extended JSON (envelope: document): values have "
            "other forms than those of ExtractNewDocumentState, and no option of it is carried "
            "over",
        )
        return "document"
    return "debezium"


def _engine(conversion: Conversion, source: PeerOptions) -> None:
    source.lose(
        "connector.class",
        "the engine passes events to code of yours: the file of the handler 'jsonl' stands for "
        "your destination",
    )
    for name in ("topic.prefix", "tombstones.on.delete"):
        source.take(name)
    conversion.handler = conversion.stand_in


def topics(source: PeerOptions) -> dict[str, Any]:
    """The names of topics, and whether a delete has a tombstone."""
    delimiter = source.take("topic.delimiter", ".")
    topic = delimiter.join(("{prefix}", "{database}", "{collection}"))
    handler: dict[str, Any] = {"prefix": source.take("topic.prefix", "debezium")}
    if delimiter != ".":
        handler["topic"] = topic
    if not source.take_flag("tombstones.on.delete", True):
        handler["tombstones"] = False
    if source.values.get("topic.naming.strategy", "").endswith("SchemaTopicNamingStrategy"):
        source.take("topic.naming.strategy")
    return handler
