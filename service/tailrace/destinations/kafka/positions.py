"""The positions of scopes, in a compacted topic of one partition.

The key is ``SCOPE/HANDLER``, the value ``{"epoch": …, "position": …}``. The last committed record
of a key counts, so it is looked for from the end.
"""

import json
import time
from dataclasses import dataclass
from typing import Self

from anyio import from_thread
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from tailrace.destinations.kafka.connection import ANSWER_SECONDS, KafkaConnection, Noted
from tailrace.destinations.kafka.outcomes import classified, ends_waiting, outage
from tailrace.destinations.kafka.records import POSITION, Record
from tailrace.destinations.kafka.topics import cleanup_policy, create_topics
from tailrace.errors import InvalidPosition, Unavailable

_FIRST_WINDOW = 1000
_GROWTH = 16
_LOOK_SECONDS = 0.02
_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 * 1024 * 1024),  # the last segment is not compacted
    "min.cleanable.dirty.ratio": "0.1",
}


@dataclass(frozen=True, slots=True)
class Stored:
    """What is stored last: the epoch of the process that wrote it, and a position."""

    epoch: int = 0
    position: str | None = None

    @classmethod
    def of(cls, value: bytes | None) -> Self:
        """Reads a record's value. Raises :class:`InvalidPosition`."""
        if value is None:
            return cls()
        try:
            read = json.loads(value)
            return cls(int(read["epoch"]), read["position"])
        except (ValueError, TypeError, LookupError) as error:
            raise InvalidPosition(f"{value!r:.60} is not a position of Tailrace") from error

    def value(self) -> bytes:
        """The record's value."""
        return json.dumps({"epoch": self.epoch, "position": self.position}).encode()


class PositionsTopic:
    """The topic of positions, for a handler of a scope. Its methods block, and may be cancelled."""

    def __init__(self, connection: KafkaConnection, scope: str) -> None:
        self._connection = connection
        self._key = f"{scope}/{connection.name}".encode()
        self._topic = connection.settings.positions_topic
        self._is_there = False

    def record(self, stored: Stored) -> Record:
        """The record that stores a position with a transaction."""
        return Record(POSITION, self._topic, self._key, stored.value(), [])

    def last(self, *, waits: bool = True) -> Stored:
        """What is stored. Raises :class:`Unavailable`.

        With ``waits``, transactions that are open now are over then; without, they do not count.
        """
        self._require_topic()
        noted = Noted()
        options = self._connection.options(noted.note) | {
            "group.id": self._topic,  # required, and not joined
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,  # the broker would wait for more than there is
            "auto.offset.reset": "earliest",
        }
        with classified(self._connection.name, f"positions_topic: {self._topic} cannot be read"):
            consumer = Consumer(options)
            try:
                return Stored.of(self._found(consumer, noted, self._end(), waits))
            finally:
                consumer.close()

    def forget(self) -> None:
        """The topic may be gone."""
        self._is_there = False

    def try_topic(self) -> str:
        """Whether the topic is as it must be, or can be created."""
        if self._partitions() == 0:
            self._create(only_try=True)
            return f"topic {self._topic} can be created"
        self._require_topic()
        policy = cleanup_policy(self._connection, self._topic, "positions_topic")
        if policy not in ("", "compact"):
            raise Unavailable(
                f"handlers.{self._connection.name}.positions_topic: topic {self._topic} would lose "
                f"positions: set its cleanup.policy to compact instead of {policy}"
            )
        return f"topic {self._topic} exists"

    def _require_topic(self) -> None:
        if self._is_there:
            return
        partitions = self._partitions()
        if partitions == 0:
            self._create()
        elif partitions > 1:
            raise Unavailable(
                f"handlers.{self._connection.name}.positions_topic: topic {self._topic} has "
                f"{partitions} partitions instead of 1: use another topic"
            )
        self._is_there = True

    def _partitions(self) -> int:
        return self._connection.topics().get(self._topic, 0)

    def _create(self, *, only_try: bool = False) -> None:
        given, name = self._connection.settings, self._connection.name
        if not given.create_topics:
            raise Unavailable(
                f"handlers.{name}.positions_topic: {self._topic} does not exist: create it with "
                "one partition and cleanup.policy=compact, or set create_topics"
            )
        replicas = given.replication_factor or -1
        topic = NewTopic(self._topic, 1, replicas, config=_CONFIG)
        create_topics(self._connection, [topic], "positions_topic", only_try=only_try)

    def _end(self) -> int:
        """The offset after the last record, committed or not."""
        partition = TopicPartition(self._topic, 0)
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        admin = self._connection.admin()  # kept: without it there is no answer
        result = admin.list_offsets(
            {partition: latest},
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=ANSWER_SECONDS,
        )
        return int(result[partition].result().offset)

    def _found(self, consumer: Consumer, noted: Noted, end: int, waits: bool) -> bytes | None:
        """The last value of the key: looks from the end, further back each time."""
        window, begin, found = _FIRST_WINDOW, end, None
        while begin > 0 and found is None:
            begin = max(0, end - window)
            found = self._last_value(consumer, noted, begin, end, waits)
            window *= _GROWTH
        return found

    def _last_value(
        self, consumer: Consumer, noted: Noted, begin: int, end: int, waits: bool
    ) -> bytes | None:
        """The last value of the key from ``begin`` to ``end``."""
        consumer.assign([TopicPartition(self._topic, 0, begin)])
        value, at, since = None, begin, time.monotonic()
        while at < end:
            from_thread.check_cancelled()
            for message in consumer.consume(500, _LOOK_SECONDS):
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                at, since = (message.offset() or 0) + (error is None), time.monotonic()
                if error is None and message.key() == self._key:
                    value = message.value()
                if error is not None and not waits:
                    return value
            if noted.error is not None and ends_waiting(noted.error):
                raise outage(self._connection.name, noted.error)
            if time.monotonic() - since > self._connection.settings.timeout_seconds:
                raise Unavailable(
                    f"handlers.{self._connection.name}.positions_topic: a transaction in topic "
                    f"{self._topic} is open, or its broker does not answer"
                )
        return value
