"""Compares what compacted topics amount to with the messages that would be sent for documents."""

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from anyio import CancelScope, to_thread
from confluent_kafka import Message as Received

from tailrace.destination import (
    Batch,
    Comparison,
    DocumentId,
    HeldKey,
    HeldKeys,
    HeldRows,
    Namespace,
    Row,
    ScopeContext,
)
from tailrace.destination.document_row import JsonRow
from tailrace.destination.held_keys import held_key
from tailrace.destination.temporary_rows import FileComparison, held_rows
from tailrace.destinations.kafka.connection import KafkaConnection
from tailrace.destinations.kafka.folded_topics import FoldedTopics, Value
from tailrace.destinations.kafka.records import NAMESPACE_HEADER, Records
from tailrace.destinations.kafka.settings import KafkaHandlerSettings
from tailrace.destinations.kafka.topics import TopicNames
from tailrace.envelope import message_key
from tailrace.errors import ScopeHalted
from tailrace.event.document_key import key_text
from tailrace.event.key import read_key_text
from tailrace.model import Scope

_ANY = "anyname"
_REFUSALS = (ValueError, LookupError, TypeError, AttributeError)


@dataclass(frozen=True, slots=True)
class TopicOfCollection:
    """Which topics hold the collections of a scope."""

    settings: KafkaHandlerSettings
    names: TopicNames
    scope: Scope

    def of(self, collection: Namespace) -> str:
        """The topic. Raises :class:`ScopeHalted` if collections share it: their keys are equal."""
        if self._shares("collection", self.scope.collection) or self._shares(
            "database", self.scope.database
        ):
            raise ScopeHalted(
                f"topic {self.settings.topic.text!r} has the messages of several collections, with "
                "the same keys: they cannot be told apart"
            )
        return self.names.of((collection.db, collection.coll or "", self.scope.name))

    def among(self, topics: Sequence[str]) -> list[str]:
        """Those of the scope among all topics."""
        name = TopicNames(self.settings.topic, self.settings.prefix).of(
            (self.scope.database or _ANY, self.scope.collection or _ANY, self.scope.name)
        )
        pattern = re.compile(re.escape(name).replace(_ANY, ".+"))
        return [topic for topic in topics if pattern.fullmatch(topic)]

    def is_ours(self, message: Received) -> bool:
        """Whether a message is of the scope's collection, if it tells, and others may be there."""
        if "{collection}" in self.settings.topic.text:
            return True
        told = dict(message.headers() or ()).get(NAMESPACE_HEADER)
        return told is None or told == str(self.scope).encode()

    def _shares(self, name: str, only: str | None) -> bool:
        return only is None and f"{{{name}}}" not in self.settings.topic.text


class TopicsComparison(FileComparison):
    """Implements :class:`tailrace.destination.Comparison`."""

    def __init__(
        self, folded: FoldedTopics, topics: TopicOfCollection, scope: ScopeContext
    ) -> None:
        refusing = topics.settings.model_copy(update={"on_oversize": "refuse"})
        records = Records(refusing, topics.names)
        super().__init__(
            lambda documents: [
                _row(folded.value_of(record.value or b"")) or {}
                for record in records.of(Batch(documents, scope))
            ]
        )
        self._folded = folded
        self._topics = topics
        self._envelope = topics.settings.envelope

    async def fold(self) -> None:
        """Reads all topics of the scope."""
        topics = await self._in_thread(self._folded.topics)
        await self._in_thread(lambda: self._folded.fold(self._topics.among(topics)))

    async def stored(self, collection: Namespace, keys: Sequence[DocumentId]) -> HeldRows:
        topic = self._topics.of(collection)
        return await self._in_thread(lambda: self._stored(topic, keys))

    async def stored_keys(self, collection: Namespace, after: str | None, most: int) -> HeldKeys:
        topic = self._topics.of(collection)
        return await self._in_thread(lambda: self._keys(topic, after, most))

    def _stored(self, topic: str, keys: Sequence[DocumentId]) -> HeldRows:
        self._folded.fold([topic])
        self._require_beginning(topic)
        values = self._folded.values(topic, [message_key(key.raw, self._envelope) for key in keys])
        return held_rows(((_row(value), len(value or b"")) for value in values), len(keys))

    def _keys(self, topic: str, after: str | None, most: int) -> HeldKeys:
        self._folded.fold([topic])
        self._require_beginning(topic)
        keys = self._folded.keys(topic, bytes.fromhex(after or ""), most)
        held = [held_key_of(key, self._envelope) for key in keys]
        following = keys[-1].hex() if len(keys) == most else None
        return HeldKeys([key for key in held if key is not None], following)

    def _require_beginning(self, topic: str) -> None:
        if lost := self._folded.lost(topic):
            raise ScopeHalted(
                f"{lost}: what was before is not known, so nobody can tell which documents it "
                "has. Only topics with cleanup.policy=compact keep the last message of each key"
            )


def value_reader(settings: KafkaHandlerSettings) -> Callable[[bytes], Value]:
    """Reads the document after the change of a message's value; the value if it is no message."""
    is_binary = settings.envelope == "cloudevents" and settings.content_mode == "binary"
    find = _event if is_binary else _FINDERS[settings.envelope]

    def read(value: bytes) -> Value:
        try:
            document = find(orjson.loads(value))
            if document is None:
                return None
            return orjson.dumps(_fields(document)).decode()
        except _REFUSALS:
            return value

    return read


def _fields(document: Any) -> Mapping[str, Any]:
    if not isinstance(document, dict):
        raise TypeError("it is no document")
    return document


def _event(message: Any) -> Any:
    return _fields(message).get("fullDocument")


_FINDERS: Mapping[str, Callable[[Any], Any]] = {
    "native": _event,
    "cloudevents": lambda message: _event(message["data"]),
    "debezium": lambda message: message["after"] and orjson.loads(message["after"]),
    "document": lambda message: message,
}
"""By envelope, where a message has the document."""


def _row(value: Value) -> Row | None:
    if isinstance(value, bytes):
        return {"value": value.decode(errors="backslashreplace")}
    return None if value is None else JsonRow(value)


def held_key_of(key: bytes, envelope: str) -> HeldKey | None:
    """The key of a message; ``None`` if it does not tell the exact ``_id``."""
    text = key.decode(errors="backslashreplace")
    if envelope != "debezium":
        return held_key(text)
    try:
        _, id = read_key_text(f'{{"_id":{orjson.loads(text)["id"]}}}')
    except _REFUSALS:
        return HeldKey(text, None)
    return HeldKey(key_text(id), DocumentId(id)) if message_key(id, envelope) == key else None


@asynccontextmanager
async def topics_comparison(
    connection: KafkaConnection,
    settings: KafkaHandlerSettings,
    names: TopicNames,
    of: Scope,
    scope: ScopeContext,
) -> AsyncIterator[Comparison]:
    """Reads the topics of a scope, and removes what was made of them afterwards."""
    topics = TopicOfCollection(settings, names, of)
    folded = FoldedTopics(connection, value_reader(settings), topics.is_ours)
    try:
        comparison = TopicsComparison(folded, topics, scope)
        await comparison.fold()
        yield comparison
    finally:
        with CancelScope(shield=True):
            await to_thread.run_sync(folded.close)
