"""Makes the records of events: topic, key, value and headers. Refuses what is too large."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tailrace.destination import Batch, MessageMaker
from tailrace.destinations.kafka.settings import KafkaHandlerSettings
from tailrace.destinations.kafka.topics import TopicNames
from tailrace.envelope import Message
from tailrace.errors import Refused
from tailrace.event import ChangeEvent, Namespace
from tailrace.event.last_change import overtaken
from tailrace.event.layout import OPERATION
from tailrace.event.memo import Memo
from tailrace.event.naming import named
from tailrace.model import Scope

Headers = list[tuple[str, str | bytes | None]]
"""Names and values, which are UTF-8; confluent-kafka's type."""

POSITION = -1
"""Instead of an index: the record holds a position."""
NAMESPACE_HEADER = "tailrace.namespace"
_OVERHEAD = 128
"""More than what a record's lengths, times and numbers take beside its contents."""
_HEADER_OVERHEAD = 10
_STRUCTURED: Headers = [("content-type", b"application/cloudevents+json; charset=UTF-8")]
"""https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md"""


class Record(NamedTuple):
    """A record of the event ``at`` this index of its batch, or :data:`POSITION`."""

    at: int
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def size(self) -> int:
        """At least what librdkafka compares with ``message.max.bytes``."""
        headers = [len(name) + len(value or b"") for name, value in self.headers]
        contents = len(self.key or b"") + len(self.value or b"") + sum(headers)
        return contents + _OVERHEAD + _HEADER_OVERHEAD * len(headers)


class _Kind(NamedTuple):
    """What records of the same collection and operation share. ``deletes``: the event is a delete,
    so that a tombstone may follow."""

    topic: str
    headers: Headers
    deletes: bool


class Records:
    """Makes them for the handler with these settings, whose topics have these names."""

    def __init__(
        self, settings: KafkaHandlerSettings, names: TopicNames, scope: Scope | None = None
    ) -> None:
        self._settings = settings
        self._names = names
        self._messages = MessageMaker(settings, scope=scope)
        self._cloudevents = settings.envelope == "cloudevents"
        self._binary = self._cloudevents and settings.content_mode == "binary"
        self._tombstones = settings.tombstones and settings.envelope != "document"
        self._largest = settings.max_message_bytes
        self._surely_small = self._largest // 2
        self._kinds: Memo[tuple[bytes | None, Namespace | None, str], _Kind] = Memo(self._kind)

    def of(self, batch: Batch) -> list[Record]:
        """The records of a batch, in order. Raises :class:`Refused` for events that have none.

        Takes milliseconds.
        """
        scope, headers, value_of = batch.scope.name, self._headers, self._value
        alive = overtaken(batch) if self._tombstones else frozenset()
        refused: dict[int, str] = {}
        made: list[Record] = []
        for at, (event, message) in enumerate(
            zip(batch, self._messages.of(list(batch), scope), strict=True)
        ):
            key, value = message.key, message.value
            if key is None and value is None:
                continue
            try:
                kind = self._kinds[event.parts[OPERATION], event.ns, scope]
            except ValueError as error:
                refused[at] = str(error)
                continue
            own = headers(kind, message)
            if message.trace is not None:
                own = [*own, *((name, text.encode()) for name, text in message.trace_headers)]
            made.append(Record(at, kind.topic, key, value_of(message), own))
            if kind.deletes and key is not None and at not in alive:
                made.append(Record(at, kind.topic, key, None, own))
        refused |= self._oversize(made)
        if refused and self._settings.on_oversize == "leave_out":
            made, refused = self._left_out(batch, made, refused)
        if refused:
            raise Refused(refused)
        return made

    def of_ddl(self, event: ChangeEvent, scope: str) -> list[Record]:
        """The record of an event that is not about a document; none without ``ddl_topic``."""
        topic = self._settings.ddl_topic
        if topic is None:
            return []
        kind = _Kind(topic, _common_headers(event.operation_type, event.ns, scope), deletes=False)
        return [
            Record(0, topic, None, self._value(each), self._headers(kind, each))
            for each in self._messages.of([event], scope)
        ]

    def _kind(self, of: tuple[bytes | None, Namespace | None, str]) -> _Kind:
        operation, namespace, scope = of
        if namespace is None or not namespace.coll:
            raise ValueError("topic: the event names no collection")
        topic = self._names.of((namespace.db, namespace.coll, scope))
        deletes = self._tombstones and operation == b"delete"
        name = (operation or b"").decode("utf-8", "replace")
        return _Kind(topic, _common_headers(name, namespace, scope), deletes)

    def _value(self, message: Message) -> bytes | None:
        return message.data if self._binary else message.value

    def _headers(self, kind: _Kind, message: Message) -> Headers:
        if self._binary:
            return [_binding(name, value) for name, value in message.headers]
        if self._cloudevents:
            return _STRUCTURED
        if not self._settings.headers:
            return []
        return [*kind.headers, ("tailrace.event_id", message.id.encode())]

    def _oversize(self, records: Sequence[Record]) -> dict[int, str]:
        largest, small = self._largest, self._surely_small
        return {
            each.at: f"its message of {each.size} bytes exceeds max_message_bytes ({largest})"
            for each in records
            if len(each.value or b"") + len(each.key or b"") > small and each.size > largest
        }

    def _left_out(
        self, batch: Batch, records: list[Record], refused: Mapping[int, str]
    ) -> tuple[list[Record], dict[int, str]]:
        left_out = self._oversize(records)
        for index, reason in left_out.items():
            batch.scope.log.warning("event.left_out", **named(batch[index]), reason=reason)
        made = [each for each in records if each.at not in left_out]
        return made, {index: why for index, why in refused.items() if index not in left_out}


def _common_headers(operation: str, namespace: Namespace | None, scope: str) -> Headers:
    return [
        ("tailrace.operation", operation.encode()),
        (NAMESPACE_HEADER, str(namespace or "").encode()),
        ("tailrace.scope", scope.encode()),
    ]


def _binding(name: str, value: str) -> tuple[str, bytes]:
    header = "content-type" if name == "datacontenttype" else f"ce_{name}"
    return header, value.encode()
