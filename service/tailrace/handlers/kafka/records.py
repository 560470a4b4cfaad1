"""Makes the records of events: topic, key, value and headers. Refuses what is too large."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tailrace.engine.batch import Batch
from tailrace.engine.naming import named
from tailrace.envelope import Message, messages
from tailrace.envelope.cloudevents import event_id
from tailrace.errors import Refused
from tailrace.event import ChangeEvent
from tailrace.event.memo import Memo
from tailrace.handlers.kafka.settings import KafkaHandlerSettings
from tailrace.handlers.kafka.topics import Namespaces, TopicNames

Headers = list[tuple[str, str | bytes | None]]
"""Names and values, which are UTF-8; confluent-kafka's type."""

_OVERHEAD = 128
"""More than what a record's lengths, times and numbers take beside its contents."""
_HEADER_OVERHEAD = 10
_STRUCTURED: Headers = [("content-type", b"application/cloudevents+json; charset=UTF-8")]
"""https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md"""


class Record(NamedTuple):
    """A record of the event ``at`` this index of its batch."""

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


class Records:
    """Makes them for the handler with these settings, whose topics have these names."""

    def __init__(self, settings: KafkaHandlerSettings, names: TopicNames) -> None:
        self._settings = settings
        self._names = names
        self._mapping = settings.fields.mapping()
        self._cloudevents = settings.envelope == "cloudevents"
        self._binary = self._cloudevents and settings.content_mode == "binary"
        self._tombstones = settings.tombstones and settings.envelope != "document"
        self._largest = settings.max_message_bytes
        self._surely_small = self._largest // 2
        self._common: Memo[tuple[str, Namespaces], Headers] = Memo(_common_headers)

    def of(self, batch: Batch) -> list[Record]:
        """The records of a batch, in order. Raises :class:`Refused` for events that have none.

        Takes milliseconds.
        """
        events = self._mapping.of(batch) if self._mapping is not None else list(batch)
        refused: dict[int, str] = {}
        made: list[Record] = []
        for index, (event, message) in enumerate(
            zip(events, self._messages(events, batch.scope.name), strict=True)
        ):
            if message.is_empty:
                continue
            try:
                made += self._records(index, event, message, batch.scope.name)
            except ValueError as error:
                refused[index] = str(error)
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
        namespace = _namespace(event, scope)
        return [
            Record(0, topic, None, self._value(message), self._headers(event, message, namespace))
            for message in self._messages([event], scope)
        ]

    def _messages(self, events: Sequence[ChangeEvent], scope: str) -> list[Message]:
        canonical = self._settings.json_format == "canonical"
        return messages(events, scope, self._settings.envelope, canonical=canonical)

    def _records(
        self, index: int, event: ChangeEvent, message: Message, scope: str
    ) -> Iterator[Record]:
        namespace = _namespace(event, scope)
        if not namespace[1]:
            raise ValueError("topic: the event names no collection")
        topic = self._names.of(namespace)
        headers = self._headers(event, message, namespace)
        yield Record(index, topic, message.key, self._value(message), headers)
        if self._tombstones and message.key is not None and event.operation_type == "delete":
            yield Record(index, topic, message.key, None, headers)

    def _value(self, message: Message) -> bytes | None:
        return message.data if self._binary else message.value

    def _headers(self, event: ChangeEvent, message: Message, namespace: Namespaces) -> Headers:
        if self._binary:
            return [_binding(name, value) for name, value in message.headers]
        if self._cloudevents:
            return _STRUCTURED
        if not self._settings.headers:
            return []
        common = self._common[event.operation_type, namespace]
        return [*common, ("tailrace.event_id", event_id(event).encode())]

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


def _namespace(event: ChangeEvent, scope: str) -> Namespaces:
    ns = event.ns
    return (ns.db, ns.coll or "", scope) if ns is not None else ("", "", scope)


def _common_headers(of: tuple[str, Namespaces]) -> Headers:
    operation, (database, collection, scope) = of
    namespace = f"{database}.{collection}" if collection else database
    return [
        ("tailrace.operation", operation.encode()),
        ("tailrace.namespace", namespace.encode()),
        ("tailrace.scope", scope.encode()),
    ]


def _binding(name: str, value: str) -> tuple[str, bytes]:
    header = "content-type" if name == "datacontenttype" else f"ce_{name}"
    return header, value.encode()
