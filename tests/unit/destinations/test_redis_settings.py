"""The settings of ``redis``, and which keys belong to what, without a server."""

from typing import Any

import pytest
from bson import Binary, ObjectId
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from tailrace.config.delivery import DeliverySettings
from tailrace.destination import Opening
from tailrace.destinations.redis import REDIS, RedisHandlerSettings
from tailrace.destinations.redis.key_names import KeyNames
from tailrace.errors import ConfigurationError
from tailrace.event import ChangeEvent
from tailrace.event.snapshot_barrier import SnapshotBarrier
from tailrace.model import Scope
from tailrace.testing import Changes

URL = "redis://127.0.0.1:6379/0"
KEY = "{database}.{collection}:{key}"
UUID_OF_1 = Binary(bytes(15) + b"\1", 4)


def settings(**given: Any) -> RedisHandlerSettings:
    return RedisHandlerSettings.model_validate({"type": "redis", "url": URL, **given})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "needs one of stream and key"),
        ({"stream": "s", "key": KEY}, "needs one of stream and key"),
        ({"stream": "{prefix}.s"}, "{prefix} has no meaning here"),
        ({"key": "orders"}, "end with {key}, as in {database}.{collection}:{key}"),
        ({"key": "{key}"}, "other characters, and end with {key}"),
        ({"key": "{key}:{key}"}, "and end with {key}"),
        ({"key": "{other}:{key}"}, "key must be {database}, {collection} or {scope}"),
        ({"key": '{{"{collection}{key}'}, "key must be"),
        ({"key": KEY, "max_length": 5}, "max_length belongs to stream"),
        ({"stream": "s", "expire_seconds": 5}, "expire_seconds belongs to key"),
        ({"key": KEY, "envelope": "native"}, "the value is the document: leave envelope out"),
        ({"stream": "s", "url": "http://127.0.0.1"}, "url must be redis://host:port/db"),
        ({"stream": "s", "url": "redis:///0"}, "url must be redis://host:port/db"),
    ],
)
def test_a_mistake_is_told_in_words(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        settings(**given)
    assert message in refusal.value.errors()[0]["msg"]


def test_a_key_needs_whole_documents_and_a_stream_does_not() -> None:
    assert settings(key=KEY).needs_documents
    assert not settings(stream="s").needs_documents


def test_a_key_without_the_names_that_a_scope_leaves_open_is_refused() -> None:
    """Collections would share their keys, and a sweep of one would delete those of another."""
    with pytest.raises(ConfigurationError) as refusal:
        KeyNames("it", settings(key="{collection}:{key}"), Scope("all"))
    assert str(refusal.value) == (
        "handlers.it.key: needs {database}: the scope 'all' follows several"
    )


def test_scopes_whose_collections_would_share_their_keys_are_refused() -> None:
    """A sweep or a repair of one would delete those of another. One collection may come twice."""

    def opened(*scopes: Scope) -> Any:
        opening = Opening("it", scopes[0], DeliverySettings(), CollectorRegistry(), scopes)
        return REDIS.create(opening, settings(key="{collection}:{key}"))

    orders, others = Scope("orders", "shop", "orders"), Scope("others", "archive", "orders")
    with pytest.raises(ConfigurationError, match="would share the keys orders:"):
        opened(orders, others)
    assert opened(orders, Scope("again", "shop", "orders"))


DONE = {"db": "shop", "coll": "orders", "state": "done"}
REFUSED = {"db": "shop", "coll": "views", "state": "refused"}


@pytest.mark.parametrize(
    ("key", "chosen", "swept"),
    [
        ('shop.orders:{"_id":1}', [], True),
        ('shop.orders:{"_id":1}', ["orders"], True),
        ('shop.views:{"_id":1}', [], False),
        ('shop.gone:{"_id":1}', [], True),
        ('shop.gone:{"_id":1}', ["orders"], False),
        ('other.orders:{"_id":1}', [], False),
        ('shop.orders:{"region":1,"_id":{"a":{}}}', [], True),
        ('shop.orders:{"other":1}', [], False),
        ("shop.orders:{user}", [], False),
        ("shop.orders", [], False),
    ],
)
def test_a_sweep_is_about_the_collections_that_were_read_or_are_gone(
    key: str, chosen: list[str], swept: bool
) -> None:
    names = KeyNames("it", settings(key=KEY), Scope("s", "shop"))
    fields = {"id": "s", "filter": "", "chosen": chosen, "collections": [DONE, REFUSED]}
    snapshot = SnapshotBarrier.of(ChangeEvent.from_document({"_id": {}, "snapshot": fields}))
    assert names.swept(snapshot).owns(key.encode()) is swept


@pytest.mark.parametrize(
    "identity", [7, "ä", ObjectId(bytes(12)), {"b": 1, "a": [None]}, 1.5, UUID_OF_1], ids=str
)
def test_a_sweep_leaves_the_keys_of_documents_with_dead_letters(identity: Any) -> None:
    names = KeyNames("it", settings(key=KEY), Scope("s", "shop"))
    snapshot = SnapshotBarrier("s", None, False, [], {})
    refused, other = (Changes().insert({"_id": each}) for each in (identity, "other"))
    swept = names.swept(snapshot, {refused.key})
    assert not swept.owns(f"shop.orders:{refused.key_text}".encode())
    assert swept.owns(f"shop.orders:{other.key_text}".encode())
