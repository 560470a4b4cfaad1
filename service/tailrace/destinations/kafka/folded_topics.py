"""The last message of each key in topics, in a temporary file: what a compacted topic amounts to.

Only committed messages count. Within a partition the last one does. If a key has messages in
several, because partitions were added, that with the latest time does.
"""

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from anyio import from_thread
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Received
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from tailrace.destination.temporary_rows import temporary_file
from tailrace.destinations.kafka.connection import ANSWER_SECONDS, KafkaConnection, Noted
from tailrace.destinations.kafka.outcomes import classified, ends_waiting, outage
from tailrace.errors import Unavailable

Value = str | bytes | None
"""A document as JSON; ``bytes`` of a message that is none of ours; ``None``: it is gone."""

PATIENCE_SECONDS = 15.0
"""How long brokers may take for the next message, and others for the end of a transaction."""
_MESSAGES = 200
_LOOK_SECONDS = 0.05
_SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -8192;
CREATE TABLE messages (
    topic TEXT, key BLOB, partition INTEGER, time INTEGER, value, PRIMARY KEY (topic, key)
);
"""
_PUT = """
INSERT INTO messages VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    partition = excluded.partition, time = excluded.time, value = excluded.value
    WHERE excluded.partition = partition OR excluded.time >= time
"""
_OPTIONS = {
    "group.id": "tailrace-verify",  # required, and not joined
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 20,  # the broker would wait for more than there is
    "queued.max.messages.kbytes": 4096,
    "auto.offset.reset": "error",
}


@dataclass(slots=True)
class FoldedTopics:
    """Topics that are read from their beginning. Its methods block, and come one after another.

    ``value_of``: of a message with a value. ``is_ours``: leaves out messages of others.
    """

    connection: KafkaConnection
    value_of: Callable[[bytes], Value]
    is_ours: Callable[[Received], bool] = lambda message: True
    _file: sqlite3.Connection = field(default_factory=partial(temporary_file, _SCHEMA))
    _noted: Noted = field(default_factory=Noted)
    _admin: AdminClient | None = None
    _consumer: Consumer | None = None
    _at: dict[tuple[str, int], int] = field(default_factory=dict)
    """By topic and partition, the next offset."""
    _begun_late: dict[str, str] = field(default_factory=dict)

    def close(self) -> None:
        """Removes the file, and closes the connections."""
        self._file.close()
        if self._consumer is not None:
            self._consumer.close()

    def topics(self) -> list[str]:
        """All that exist. Raises :class:`Unavailable`."""
        return list(self.connection.topics())

    def lost(self, topic: str) -> str:
        """What of a topic is not there any more, for people; empty if nothing is."""
        return self._begun_late.get(topic, "")

    def fold(self, topics: Iterable[str]) -> None:
        """Reads what is in topics now, and committed. Transactions that are open now are over then.

        Raises :class:`Unavailable`, also if a transaction stays open.
        """
        with classified(self.connection.name, "the topics cannot be read"):
            self._fold(topics)

    def values(self, topic: str, keys: Sequence[bytes]) -> list[Value]:
        """The values of these keys."""
        sql = "SELECT value FROM messages WHERE topic = ? AND key = ?"
        found = [self._file.execute(sql, (topic, key)).fetchone() for key in keys]
        return [None if one is None else one[0] for one in found]

    def keys(self, topic: str, after: bytes, most: int) -> list[bytes]:
        """The next keys that have values."""
        sql = "SELECT key FROM messages WHERE topic = ? AND key > ? AND value IS NOT NULL"
        rows = self._file.execute(f"{sql} ORDER BY key LIMIT ?", (topic, after, most))
        return [key for (key,) in rows]

    def _fold(self, topics: Iterable[str]) -> None:
        if self._admin is None or self._consumer is None:
            options = self.connection.options(self._noted.note)
            self._admin, self._consumer = AdminClient(options), Consumer(options | _OPTIONS)
        listed = self._admin.list_topics(timeout=ANSWER_SECONDS).topics
        partitions = [
            (name, at) for name in topics if name in listed for at in listed[name].partitions
        ]
        ends = self._offsets(self._admin, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        new = [each for each in partitions if each not in self._at]
        begins = self._offsets(self._admin, new, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        for (topic, number), offset in begins.items():
            if offset > 0:
                begin = f"partition {number} of topic {topic} begins at offset {offset}"
                self._begun_late.setdefault(topic, begin)
            self._at[topic, number] = offset
        for (topic, number), end in ends.items():
            if end < self._at[topic, number]:
                raise Unavailable(f"topic {topic} was created again: it is read again")
        unread = {
            each: end
            for each, end in ends.items()
            if self._at[each] < end and each[0] not in self._begun_late
        }
        if unread:
            self._read(self._consumer, unread)

    @staticmethod
    def _offsets(
        admin: AdminClient, partitions: Sequence[tuple[str, int]], of: OffsetSpec
    ) -> dict[tuple[str, int], int]:
        """The first offsets, or those after the last messages, committed or not."""
        if not partitions:
            return {}
        answers = admin.list_offsets(
            {TopicPartition(*each): of for each in partitions},
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=ANSWER_SECONDS,
        )
        return {(at.topic, at.partition): answer.result().offset for at, answer in answers.items()}

    def _read(self, consumer: Consumer, unread: dict[tuple[str, int], int]) -> None:
        """Reads each partition up to an offset, or more."""
        consumer.assign([TopicPartition(*each, self._at[each]) for each in unread])
        moved = time.monotonic()
        self._file.execute("BEGIN")
        while unread:
            from_thread.check_cancelled()
            if received := consumer.consume(_MESSAGES, _LOOK_SECONDS):
                moved = time.monotonic()
                self._file.executemany(_PUT, filter(None, map(self._received, received)))
                unread = {each: end for each, end in unread.items() if self._at[each] < end}
            if self._noted.error is not None and ends_waiting(self._noted.error):
                raise outage(self.connection.name, self._noted.error)
            if time.monotonic() - moved > PATIENCE_SECONDS:
                names = ", ".join(sorted({topic for topic, _ in unread}))
                raise Unavailable(
                    f"handlers.{self.connection.name}.topic: a transaction in topic {names} is "
                    "open, or its broker does not answer"
                )
        self._file.execute("COMMIT")
        consumer.unassign()

    def _received(self, message: Received) -> tuple[str, bytes, int, int, Value] | None:
        """The row of a message that counts."""
        error, topic, partition = message.error(), message.topic(), message.partition()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        assert topic is not None  # noqa: S101 - for the type checker
        assert partition is not None  # noqa: S101
        self._at[topic, partition] = (message.offset() or 0) + (error is None)
        key, value = message.key(), message.value()
        if error is not None or key is None or not self.is_ours(message):
            return None
        return (
            topic,
            key.encode() if isinstance(key, str) else key,
            partition,
            message.timestamp()[1],
            None if value is None else self.value_of(value),
        )
