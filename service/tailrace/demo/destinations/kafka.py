"""Apache Kafka: one topic of one partition, in a broker of Kafka's own jars."""

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio import to_thread
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tailrace.demo.child_process import child_process
from tailrace.demo.destinations.kafka_programs import broker_command, kafka_jars
from tailrace.demo.destinations.target import (
    NATIVE,
    Source,
    Target,
    message_differences,
    until_answers,
)
from tailrace.demo.server import free_port
from tailrace.demo.workspace import Layout
from tailrace.errors import TailraceError

_TOPIC = "shop"
_CLUSTER = "tailrace-demo-00000000"
_READ_SECONDS = 30.0


@asynccontextmanager
async def opened(layout: Layout, database: str) -> AsyncIterator[Target]:
    """Runs a broker on loopback during the block, with transactions."""
    port = free_port()
    servers = f"127.0.0.1:{port}"
    jars = await to_thread.run_sync(kafka_jars)
    properties = layout.destination / "server.properties"
    properties.write_text(_properties(port, free_port(), layout.destination / "kafka"))
    format_it = ("format", "-t", _CLUSTER, "-c", str(properties))
    await anyio.run_process([*broker_command(jars, "kafka.tools.StorageTool"), *format_it])

    async def answers() -> bool:
        return await to_thread.run_sync(_answers, servers)

    async def differences(source: Source) -> list[str]:
        return message_differences(await to_thread.run_sync(_messages, servers), source)

    command = [*broker_command(jars, "kafka.Kafka"), str(properties)]
    async with child_process(command, log=layout.log("destination")) as child:
        await until_answers(child, "Kafka", answers)
        handler = {
            "type": "kafka",
            "bootstrap_servers": servers,
            "topic": _TOPIC,
            "ddl_topic": _TOPIC,
            "partitions": 1,
            "exactly_once": True,
            **NATIVE,
        }
        yield Target(handler, f"the topic {_TOPIC!r} at {servers}", differences)


def _properties(port: int, controller: int, data: Path) -> str:
    shutil.rmtree(data, ignore_errors=True)
    return f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


def _answers(servers: str) -> bool:
    try:
        AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics(timeout=2)
    except KafkaException:
        return False
    return True


def _messages(servers: str) -> Sequence[bytes]:
    """Every committed message of the topic that has a value, in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "demo",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(_TOPIC, 0, 0)])
        messages: list[bytes] = []
        while (message := consumer.poll(_READ_SECONDS)) is not None:
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return messages
            if error is not None:
                raise KafkaException(error)
            if (value := message.value()) is not None:
                messages.append(value)
        raise TailraceError(f"no message came for {_READ_SECONDS:.0f} s after {len(messages)}")
    finally:
        consumer.close()
