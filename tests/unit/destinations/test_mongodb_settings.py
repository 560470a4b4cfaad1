"""The type ``mongodb`` without a server: its settings, its names and its statements."""

from typing import Any

import bson
import pytest
from bson import Timestamp
from pymongo.errors import (
    AutoReconnect,
    NotPrimaryError,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
)

from tailrace.destination.names import Template, require_apart
from tailrace.destinations.mongodb import MONGODB, MongodbHandlerSettings
from tailrace.destinations.mongodb.copy_changes import CopyChanges
from tailrace.destinations.mongodb.names import Names, followed, known_targets, shared
from tailrace.destinations.mongodb.outcomes import outages
from tailrace.destinations.mongodb.statements import (
    BulkWrite,
    Change,
    Order,
    changes,
    insertions,
    of_shard_keys,
)
from tailrace.errors import ConfigurationError, Unavailable
from tailrace.event import ChangeEvent, Namespace
from tailrace.event.document_key import shard_key
from tailrace.event.last_change import last_changes
from tailrace.handlers import check_handlers
from tailrace.model import Scope
from tailrace.model.cluster import ClusterIdentity

COPY = Namespace("copy", "orders")


def settings(**keys: Any) -> MongodbHandlerSettings:
    return MongodbHandlerSettings(
        **{"type": "mongodb", "uri": "mongodb://a/", "database": "copy", **keys}
    )


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("host:27017", "must be a connection string: mongodb://"),
        ("mongodb://a b/", "no spaces"),
        ("mongodb://user:pass@word@host/", "must be percent-encoded"),
        (
            "mongodb://host:port/",
            "a usable connection string: Port contains non-digit",
        ),
        ("mongodb://host/?tls=perhaps", "The value of tls must be 'true' or 'false'"),
    ],
)
def test_a_uri_that_cannot_be_used_is_one_line_without_its_password(uri: str, message: str) -> None:
    (problem,) = check_handlers({"mirror": settings(uri=uri)})
    assert problem.path == "handlers.mirror.uri"
    assert message in problem.message
    assert "word" not in problem.message.replace("password", "")


def test_an_outbox_takes_updates_without_documents_and_a_mirror_does_not() -> None:
    assert settings().needs_documents
    assert not settings(outbox="events").needs_documents
    assert settings(database="{scope}", state_database="state").state == "state"
    assert settings().state == "copy"
    assert MONGODB.needs == ()


@pytest.mark.parametrize(
    ("scopes", "message"),
    [
        ([Scope("a", "x", "c"), Scope("b", "y", "c")], "x.c and y.c would share the copy copy.c"),
        ([Scope("a", "x"), Scope("b", "x", "c")], "scopes 'a' and 'b' both follow x.c"),
        ([Scope("a", "x", "c"), Scope("b", "x", "d"), Scope("e", "y")], ""),
    ],
)
def test_names_that_collide_are_refused_at_the_start(scopes: list[Scope], message: str) -> None:
    names = Names(Template("copy"), Template("{collection}"))
    if not message:
        require_apart("p", scopes, names.of, shared)
        return
    with pytest.raises(ConfigurationError, match=message):
        require_apart("p", scopes, names.of, shared)


@pytest.mark.parametrize(
    ("names", "scope", "message"),
    [
        (("{database}", "{collection}"), Scope("s", "copy"), "write to copy.tailrace_positions"),
        (("other", "{collection}"), Scope("s", "shop", "a"), ""),
        (("shop", "{collection}"), Scope("s", "shop", "a"), "write to shop.a"),
        (("shop", "copy_{collection}"), Scope("s", "shop", "a"), ""),
        (("shop", "all"), Scope("s", "shop"), "write to shop.all"),
        (("other", "{collection}"), Scope("s"), "write to copy.tailrace_positions"),
    ],
)
def test_what_a_handler_follows_it_never_writes(
    names: tuple[str, str], scope: Scope, message: str
) -> None:
    ours = ClusterIdentity("rs0", "1")
    known = list(known_targets(Names(*map(Template, names)), "copy", [scope]))
    found = followed(ours, "rs0/1", known, [scope])
    assert message in found
    assert bool(message) == ("leads to the same cluster" in found)
    assert followed(ours, "rs0/2", known, [scope]) == ""
    found = followed(ours, "rs0/", known, [scope])
    assert bool(message) == ("grant the role clusterMonitor" in found)


def _failure(code: int, *labels: str) -> OperationFailure:
    return OperationFailure("x", code, {"errmsg": "x", "code": code, "errorLabels": list(labels)})


@pytest.mark.parametrize(
    ("error", "is_outage"),
    [
        (AutoReconnect("x"), True),
        (ServerSelectionTimeoutError("x"), True),
        (NotPrimaryError("x"), True),
        (_failure(13), True),
        (_failure(18), True),
        (_failure(50), True),
        (_failure(112, "TransientTransactionError"), True),
        (_failure(251, "TransientTransactionError"), True),
        (_failure(251, "UnknownTransactionCommitResult"), True),
        (_failure(64, "UnknownTransactionCommitResult"), True),
        (_failure(14031), True),
        (_failure(59), False),
    ],
)
def test_an_error_is_an_outage_by_its_class_its_label_or_its_code(
    error: PyMongoError, is_outage: bool
) -> None:
    with pytest.raises(Unavailable if is_outage else type(error)), outages():
        raise error


def _statements(found: list[BulkWrite]) -> list[tuple[str, list[dict[str, Any]]]]:
    return [(each.verb, list(map(bson.decode, each.statements))) for each in found]


@pytest.mark.parametrize("document", [{"$a": 1}, {"t": Timestamp(0, 0)}, {"a": {"$b": "$c"}}])
@pytest.mark.parametrize("order", ["last", "anew", "stream"])
def test_a_document_that_is_no_replacement_is_made_anew_by_a_literal(
    document: dict[str, Any], order: Order
) -> None:
    key, whole = {"_id": 1}, {"_id": 1, **document}
    change = Change(0, bson.encode(key), bson.encode(whole))
    literal = "a" not in document
    update = [{"$replaceWith": {"$literal": whole}}] if literal else whole
    found = _statements(list(changes(COPY, [change], order=order)))
    deletes = [("delete", [{"q": key, "limit": 1}])] if literal or order == "anew" else []
    assert found == [*deletes, ("update", [{"q": key, "u": update, "upsert": True}])]


def test_a_command_has_less_than_the_bytes_and_statements_that_a_server_takes() -> None:
    large = [(at, bson.encode({"_id": at, "x": b"x" * 5_000_000})) for at in range(5)]
    assert [each.indices for each in insertions(COPY, large, again=False)] == [[0, 1], [2, 3], [4]]
    many = [Change(at, bson.encode({"_id": at}), None) for at in range(10_001)]
    assert [len(each.statements) for each in changes(COPY, many)] == [10_000, 1]


def _event(operation: str, identity: Any, **more: Any) -> ChangeEvent:
    where = {"ns": {"db": "shop", "coll": "orders"}, "documentKey": {"s": 1, "_id": identity}}
    return ChangeEvent.from_document({"_id": {}, "operationType": operation, **where, **more})


@pytest.mark.parametrize(
    ("event", "refused", "document"),
    [
        (_event("insert", 1, fullDocument={"_id": 1}), "", {"_id": 1}),
        (_event("update", 1, fullDocument=None), "", "none"),
        (_event("delete", 1), "", None),
        (_event("insert", 1), "it has no document", "none"),
        (_event("replace", 1, fullDocument=None), "it has no document", "none"),
    ],
)
def test_what_an_event_does_to_a_copy(event: ChangeEvent, refused: str, document: Any) -> None:
    wanted = CopyChanges(COPY)
    assert wanted.add(0, event).startswith(refused)
    assert bool(wanted.keys) == (not refused)
    if document == "none":
        assert wanted.changes == []
        return
    (change,) = wanted.changes
    assert bson.decode(change.key) == {"_id": 1}
    assert document == (change.document and bson.decode(change.document))


def test_of_each_document_the_last_event_counts_whatever_the_type_of_its_number() -> None:
    ids = [1, 2, bson.Int64(1), 2.0, "1", 3]
    events = [_event("delete", each) for each in ids]
    assert [change.index for change in last_changes(events)] == [2, 3, 4, 5]


@pytest.mark.parametrize(
    "value", [{"$type": 2}, {"$gt": ""}, bson.Regex("^a"), {"a": 1}, "text", 5], ids=str
)
def test_an_id_is_never_read_as_a_query(value: Any) -> None:
    key, odd = bson.encode({"_id": value}), not isinstance(value, str | int) and value != {"a": 1}
    wanted = {"_id": {"$eq": value} if odd else value}
    (delete,) = changes(COPY, [Change(0, key, None)])
    (update,) = changes(COPY, [Change(0, key, key)])
    assert [bson.decode(each.statements[0])["q"] for each in (delete, update)] == [wanted] * 2


def test_a_delete_spares_a_copy_with_another_shard_key() -> None:
    regions = "us", bson.Regex("x")
    keys = [shard_key(bson.encode({"a.b": region, "_id": 1})) for region in regions]
    key, only_if = bson.encode({"_id": 1}), of_shard_keys(keys)
    (delete,) = changes(COPY, [Change(0, key, None, only_if)])
    choices = [
        {"a.b": {"$eq": "us"}},
        {"a.b": {"$exists": False}},
        {"a.b": {"$eq": bson.Regex("x")}},
    ]
    assert bson.decode(delete.statements[0])["q"] == {"_id": 1, "$or": choices}
