"""Kafka in the contract suite: a topic of one partition for each collection."""

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from bson import json_util
from confluent_kafka import Message, Producer

from tests.destinations.destination import Make, Sent
from tests.destinations.kafka_server import KafkaServer, kafka_server


class Kafka:
    """``name`` is the prefix of its topics. Messages are committed ones."""

    name = "kafka"
    refused: Mapping[str, Any] | None = {"text": "x" * 150_000}

    def __init__(self, server: KafkaServer, prefix: str, *, once: bool) -> None:
        self.once = once
        self.server = server
        self.prefix = prefix
        self._secret = server.directory / f"{prefix}.password"
        self.renew()
        self.handler: Mapping[str, Any] = {
            "type": "kafka",
            "bootstrap_servers": server.guarded_servers,
            "security_protocol": "sasl_plaintext",
            "sasl_mechanism": "SCRAM-SHA-256",
            "username": prefix,
            "password": {"file": str(self._secret)},
            "prefix": prefix,
            "exactly_once": once,
            "partitions": 1,
            "max_message_bytes": 100_000,
            "timeout_seconds": 2,  # below the lease of the suite
            "positions_topic": f"{prefix}-positions",
        }

    def start(self) -> None:
        self.server.start()

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        self.server.stop(number)

    def pause(self) -> None:
        self.server.pause()

    def expire(self) -> None:
        """The broker starts again, so that no connection stays open."""
        self.server.set_password(self.prefix, "another")
        self.server.stop()
        self.server.start()

    def renew(self) -> None:
        password = uuid4().hex
        self.server.set_password(self.prefix, password)
        self._secret.write_text(password)

    def sent(self) -> Sequence[Sent]:
        """Without tombstones, which say nothing more than the message before."""
        found = []
        for message in self.messages():
            value = message.value()
            if value is not None:
                event = json_util.loads(value)
                id = dict(message.headers() or ())["tailrace.event_id"]
                key, document = _text(message.key()), event.get("fullDocument")
                found.append(Sent(key, event["operationType"], document, _text(id)))
        return found

    def documents(self, database: str, collection: str) -> Mapping[str, Mapping[str, Any]]:
        found: dict[str, Mapping[str, Any]] = {}
        for message in self.messages(f"{self.prefix}.{database}.{collection}"):
            key, value = _text(message.key()), message.value()
            document = None if value is None else json_util.loads(value).get("fullDocument")
            assert key is not None
            if document is None:
                found.pop(key, None)
            else:
                found[key] = document
        return found

    def messages(self, *topics: str) -> list[Message]:
        """The committed messages of these topics, or of all with its prefix, by partition."""
        return self.server.messages(*(topics or self.topics()))

    def send(self, key: str | bytes, value: str | bytes | None) -> None:
        """A message that no handler has sent, to the topic of ``orders``."""
        (topic,) = (name for name in self.topics() if name.endswith(".orders"))
        options = {"bootstrap.servers": self.server.bootstrap_servers, "log_level": 0}
        producer = Producer(options)
        producer.produce(topic, value, key)
        assert producer.flush(30) == 0

    def topics(self) -> list[str]:
        names = self.server.admin.list_topics(timeout=60).topics
        return sorted(name for name in names if name.startswith(f"{self.prefix}."))


def _text(key: str | bytes | None) -> str | None:
    return key.decode() if isinstance(key, bytes) else key


@contextmanager
def serve(*, once: bool = False) -> Iterator[Make]:
    with kafka_server() as server:
        yield lambda name, *, log=False, once=once: Kafka(server, name, once=once)
