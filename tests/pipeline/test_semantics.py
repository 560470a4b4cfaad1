"""How each kind of change is applied to ``current`` and ``history``.

Starting Spark's jobs costs more than all cases together. So the cases of single documents are keys
of one collection, and all of them land in the same three batches.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline
from tests.scratch import MakeDirectory
from tests.scripted.sharded import SEQUENCES, Sequence, ShardedCollection

Events = list[dict[str, Any]]
Batches = Callable[[Stream, str], list[Events]]


@dataclass(frozen=True)
class Case:
    """Up to three batches of events of one key, and the resulting versions, at most one open."""

    name: str
    batches: Batches
    versions: list[tuple[Any, str, str | None]]


def redelivered(s: Stream, k: str) -> list[Events]:
    events = [s.insert(k, n=1), s.update(k, n=2, image={"_id": k, "n": 2}), s.delete(k)]
    return [events, [dict(event) for event in events[:2]], [dict(event) for event in events]]


def redelivered_descriptions(s: Stream, k: str) -> list[Events]:
    events = [s.insert(k, n=1, list=[1]), s.update(k, list__1=2), s.update(k, n=5)]
    return [events, [dict(event) for event in events], [s.update(k, m=1)]]


def late(s: Stream, k: str) -> list[Events]:
    old = s.insert(k, n=1)
    return [[s.insert(k, n=2)], [old]]


def late_after_delete(s: Stream, k: str) -> list[Events]:
    old = s.insert(k, n=1)
    return [[s.insert(k, n=2), s.delete(k)], [old]]


def one_transaction(s: Stream, k: str) -> list[Events]:
    with s.transaction():
        return [[s.insert(k, n=1), s.update(k, n=2), s.update(k, n=3)]]


def sharded(event: dict[str, Any], **shard: Any) -> dict[str, Any]:
    """The event from a sharded collection: fields of the shard key come first in its key."""
    return event | {"documentKey": {**shard, **event["documentKey"]}}


def moved(s: Stream, k: str, *, insert_first: bool, old: dict[str, Any]) -> Events:
    """A change of the shard key's value that moves the document to another shard.

    It is one transaction, and mongos sends the shards' events in the order of their tokens.
    """
    with s.transaction():
        pair = [sharded(s.delete(k), **old), sharded(s.insert(k, n=2), region="us")]
    return pair[::-1] if insert_first else pair


EU, US = {"region": "eu"}, {"region": "us"}


def in_shards(sequence: Sequence, *, version: int, images: bool) -> Batches:
    """What mongos sends for a document, a transaction in a batch at the most."""

    def batches(s: Stream, k: str) -> list[Events]:
        collection = ShardedCollection(version, images=images)
        sequence(collection, k)
        first, second, *rest = [*collection.sent, [], []]
        return [first, second, [event for group in rest for event in group]]

    return batches


def documents_of(sequence: Sequence) -> list[tuple[Any, bool]]:
    """The documents that there are after each transaction, and whether each is the last one."""
    collection, seen = ShardedCollection(), list[Any]()
    collection.on_send = lambda: seen.append(collection.living().get("k"))
    sequence(collection, "k")
    return [(each, at == len(seen) - 1) for at, each in enumerate(seen) if each is not None]


def shard_moves(*, insert_first: bool, old: dict[str, Any]) -> Batches:
    return lambda s, k: [
        [sharded(s.insert(k, n=1), **old)],
        moved(s, k, insert_first=insert_first, old=old),
    ]


CASES = [
    Case(
        "the shard key moves, the delete first",
        shard_moves(insert_first=False, old=EU),
        [({"n": 1}, "insert", "delete"), ({"n": 2}, "insert", None)],
    ),
    Case(
        "the shard key moves, the insert first",
        shard_moves(insert_first=True, old=EU),
        [({"n": 1}, "insert", "insert"), ({"n": 2}, "insert", None)],
    ),
    Case(
        "the shard key of an unknown document moves",
        lambda s, k: [moved(s, k, insert_first=True, old=EU)],
        [({"n": 2}, "insert", None)],
    ),
    Case(
        "a missing shard key is set",
        shard_moves(insert_first=True, old={}),
        [({"n": 1}, "insert", "insert"), ({"n": 2}, "insert", None)],
    ),
    Case(
        "moved by hand, insert and delete apart",
        lambda s, k: [
            [sharded(s.insert(k, n=1), **EU)],
            [sharded(s.insert(k, n=2), **US)],
            [sharded(s.delete(k), **EU)],
        ],
        [({"n": 1}, "insert", "insert"), ({"n": 2}, "insert", None)],
    ),
    Case(
        "moved and updated, then deleted where it is",
        lambda s, k: [
            [sharded(s.insert(k, n=1), **EU), *moved(s, k, insert_first=True, old=EU)],
            [sharded(s.update(k, m=3), **US)],
            [sharded(s.delete(k), **US)],
        ],
        [
            ({"n": 1}, "insert", "insert"),
            ({"n": 2}, "insert", "update"),
            ({"n": 2, "m": 3}, "update", "delete"),
        ],
    ),
    Case(
        "the shard key changes within its shard",
        lambda s, k: [
            [sharded(s.insert(k, n=1), **EU)],
            [sharded(s.update(k, n=2), **US)],
            [sharded(s.delete(k), **US)],
        ],
        [({"n": 1}, "insert", "update"), ({"n": 2}, "update", "delete")],
    ),
    Case(
        "sharded, and resharded, during its life",
        lambda s, k: [
            [s.insert(k, n=1)],
            [sharded(s.update(k, n=2), **EU)],
            [sharded(s.delete(k), **EU, customer=7)],
        ],
        [({"n": 1}, "insert", "update"), ({"n": 2}, "update", "delete")],
    ),
    Case(
        "replaced with other types, fewer and more fields",
        lambda s, k: [[s.insert(k, n=1)], [s.replace(k, n="x", m={})], [s.replace(k)]],
        [
            ({"n": 1}, "insert", "replace"),
            ({"n": "x", "m": {}}, "replace", "replace"),
            ({}, "replace", None),
        ],
    ),
    Case(
        "an image that is newer than its event",
        lambda s, k: [
            [s.insert(k, n=1), s.update(k, n=2, image={"_id": k, "n": 3})],
            [s.update(k, n=3, image={"_id": k, "n": 3})],
        ],
        [
            ({"n": 1}, "insert", "update"),
            ({"n": 3}, "update", "update"),
            ({"n": 3}, "update", None),
        ],
    ),
    Case(
        "updates by description and by image",
        lambda s, k: [
            [s.insert(k, n=1, o={"a": 1}, gone=1), s.update(k, o__b=2)],
            [s.update(k, n=7, image={"_id": k, "n": 7, "gone": 1}), s.update(k, removed=["gone"])],
            [s.update(k, m=2)],
        ],
        [
            ({"n": 1, "o": {"a": 1}, "gone": 1}, "insert", "update"),
            ({"n": 1, "o": {"a": 1, "b": 2}, "gone": 1}, "update", "update"),
            ({"n": 7, "gone": 1}, "update", "update"),
            ({"n": 7}, "update", "update"),
            ({"n": 7, "m": 2}, "update", None),
        ],
    ),
    Case(
        "a look-up that found nothing is applied to what is known",
        lambda s, k: [[s.insert(k, n=1)], [s.update(k, n=2, image=None)], [s.delete(k)]],
        [({"n": 1}, "insert", "update"), ({"n": 2}, "update", "delete")],
    ),
    Case(
        "a look-up that found nothing of an unknown document",
        lambda s, k: [[s.update(k, n=2, image=None)]],
        [],
    ),
    Case(
        "an unknown document is known from its first image on",
        lambda s, k: [[s.update(k, n=1), s.update(k, n=2)], [s.replace(k, n=3)]],
        [(None, "update", "update"), (None, "update", "replace"), ({"n": 3}, "replace", None)],
    ),
    Case(
        "an unknown document is updated",
        lambda s, k: [[s.update(k, n=2)]],
        [(None, "update", None)],
    ),
    Case("delete of an unknown document", lambda s, k: [[s.delete(k)]], []),
    Case(
        "insert and delete in one batch, and again",
        lambda s, k: [
            [s.insert(k, n=1), s.delete(k), s.insert(k, n=2)],
            [s.delete(k), s.insert(k, n=3), s.delete(k)],
            [s.insert(k, n=4)],
        ],
        [
            ({"n": 1}, "insert", "delete"),
            ({"n": 2}, "insert", "delete"),
            ({"n": 3}, "insert", "delete"),
            ({"n": 4}, "insert", None),
        ],
    ),
    Case("a transaction is one change", one_transaction, [({"n": 3}, "update", None)]),
    Case(
        "redelivered after the delete",
        redelivered,
        [({"n": 1}, "insert", "update"), ({"n": 2}, "update", "delete")],
    ),
    Case(
        "redelivered descriptions",
        redelivered_descriptions,
        [
            ({"n": 1, "list": [1]}, "insert", "update"),
            ({"n": 1, "list": [1, 2]}, "update", "update"),
            ({"n": 5, "list": [1, 2]}, "update", "update"),
            ({"n": 5, "list": [1, 2], "m": 1}, "update", None),
        ],
    ),
    Case("late", late, [({"n": 2}, "insert", None)]),
    Case("late after the delete", late_after_delete, [({"n": 2}, "insert", "delete")]),
]


SHARDED = {
    f"{name}, tokens {version}, {'images' if images else 'descriptions'}": (sequence, images)
    for name, sequence in SEQUENCES.items()
    for version, images in ((1, True), (2, True), (1, False))
}


@pytest.fixture(scope="module")
def documents(
    spark: SparkSession, session_directory: MakeDirectory
) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    """``current`` and ``history`` after all cases, in three runs of the pipeline."""
    pipeline = Pipeline(spark, session_directory("cases"))
    stream = Stream()
    batches: list[Events] = [[], [], []]
    for case in CASES:
        for batch, events in zip(batches, case.batches(stream, case.name), strict=False):
            batch.extend(events)
    for name, (sequence, images) in SHARDED.items():
        made = in_shards(sequence, version=2 if "tokens 2" in name else 1, images=images)
        for batch, events in zip(batches, made(stream, name), strict=True):
            batch.extend(events)
    for batch in batches:
        # A scope's events come in order of time, except for repeated or late ones.
        pipeline.land(sorted(batch, key=lambda event: event["clusterTime"]))
        with pipeline.compiled():
            pipeline.run()
    return pipeline.current(), pipeline.history()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_document(case: Case, documents: Any) -> None:
    current, history = documents
    live = [document for document, _, ended_by in case.versions if ended_by is None]
    assert [document for key, document in current.items() if key == case.name] == live
    versions = [tuple(version[1:]) for version in history if version[0] == case.name]
    assert versions == case.versions


@pytest.mark.parametrize("name", SHARDED)
def test_a_document_of_a_sharded_collection(name: str, documents: Any) -> None:
    current, history = documents
    expected = [
        ({key: value for key, value in document.items() if key != "_id"}, last)
        for document, last in documents_of(SHARDED[name][0])
    ]
    live = [document for key, document in current.items() if key == name]
    assert live == [document for document, last in expected if last]
    assert [version[1] for version in history if version[0] == name] == [
        document for document, _ in expected
    ]
