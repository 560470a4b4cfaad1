"""What is special about Kafka: keys, topics, refusals by the broker, transactions, credentials."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import structlog
from anyio import to_thread
from bson.timestamp import Timestamp
from confluent_kafka import Producer, murmur2
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic
from prometheus_client import CollectorRegistry

from tailrace.config.delivery import DeliverySettings
from tailrace.engine.batch import Batch, ScopeContext
from tailrace.errors import Fenced, PermanentError, Refused, TemporaryError, Unavailable
from tailrace.event import ChangeEvent
from tailrace.handlers.handler_type import Opening, Trial
from tailrace.handlers.kafka.at_least_once import Kafka
from tailrace.handlers.kafka.exactly_once import ExactlyOnceKafka
from tailrace.handlers.kafka.settings import KafkaHandlerSettings
from tailrace.model import Scope
from tests.destinations import kafka
from tests.destinations.destination import Make


@pytest.fixture
def topics(served: Callable[[str], Make], database: str) -> kafka.Kafka:
    """The real server, and the topics of this test: ``{prefix}.shop.orders``."""
    found = served("kafka")(database)
    assert isinstance(found, kafka.Kafka)
    return found


def event(identity: Any = 7, operation: str = "insert", text: str = "") -> ChangeEvent:
    document: dict[str, Any] = {
        "_id": {"_data": f"8265{identity:08}"},
        "operationType": operation,
        "clusterTime": Timestamp(1_700_000_000, 1),
        "ns": {"db": "shop", "coll": "orders"},
        "documentKey": {"_id": identity},
        "fullDocument": {"_id": identity, "text": text},
    }
    return ChangeEvent.from_document(document)


def scope(name: str = "orders", epoch: int = 1) -> ScopeContext:
    return ScopeContext(name, epoch, 1, structlog.get_logger(), CollectorRegistry())


def batch(*events: ChangeEvent, epoch: int = 1, **positions: str | None) -> Batch:
    return Batch(events, scope(epoch=epoch), **positions)


@asynccontextmanager
async def opened(topics: kafka.Kafka, **more: Any) -> AsyncIterator[Any]:
    """The handler ``bus``, entered."""
    settings = KafkaHandlerSettings(**{**topics.handler, **more})
    kind = ExactlyOnceKafka if settings.exactly_once else Kafka
    async with kind(Opening("bus", DeliverySettings(), CollectorRegistry()), settings) as found:
        yield found


def ids(topics: kafka.Kafka, isolation: str = "read_committed") -> list[int]:
    """The ``_id`` of each message of ``shop.orders``, in order."""
    found = topics.server.messages(f"{topics.prefix}.shop.orders", isolation=isolation)
    return [json.loads(each.value() or b"")["documentKey"]["_id"] for each in found]


def limit_messages(topics: kafka.Kafka, size: int) -> None:
    """Lets the broker refuse larger messages than the handler does."""
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    place = ConfigResource(
        ConfigResource.Type.TOPIC, f"{topics.prefix}.shop.orders", incremental_configs=[entry]
    )
    admin = topics.server.admin
    for result in admin.incremental_alter_configs([place]).values():
        result.result(10)


# --- messages --------------------------------------------------------------------------------


async def test_a_plain_consumer_gets_keys_partitions_headers_and_tombstones(
    topics: kafka.Kafka,
) -> None:
    async with opened(topics, partitions=5) as bus:
        await bus.write(batch(*map(event, range(20)), event(3, "delete")))
    found = topics.messages()
    assert Counter(each.key() for each in found)[b'{"_id":{"$numberInt":"3"}}'] == 3
    for each in found:
        assert each.partition() == murmur2(each.key() or b"", 5)  # as Java's producers
    *_, deleted, tombstone = [each for each in found if b'"3"' in (each.key() or b"")]
    assert (tombstone.value(), tombstone.headers()) == (None, deleted.headers())
    assert dict(deleted.headers() or ())["tailrace.operation"] == b"delete"


async def test_a_created_topic_has_partitions_replication_factor_and_room_for_max_message_bytes(
    topics: kafka.Kafka,
) -> None:
    more = {"partitions": 3, "replication_factor": 1, "max_message_bytes": 3_000_000}
    async with opened(topics, **more) as bus:
        await bus.write(batch(event(1, text="x" * 2_900_000)))
    (name,) = topics.topics()
    created = topics.server.admin.list_topics(name, timeout=10).topics[name]
    assert [len(each.replicas) for each in created.partitions.values()] == [1, 1, 1]
    assert ids(topics) == [1]


@pytest.mark.parametrize("more", [{"create_topics": False}, {"replication_factor": 3}])
async def test_a_topic_that_is_neither_there_nor_created_is_waited_for(
    topics: kafka.Kafka, more: dict[str, Any]
) -> None:
    name = f"{topics.prefix}.shop.orders"
    async with opened(topics, **more) as bus:
        with pytest.raises(Unavailable, match=rf"handlers\.bus.*{name}"):
            await bus.write(batch(event()))
        topics.server.admin.create_topics([NewTopic(name, 1)])[name].result(10)
        await bus.write(batch(event()))
    assert ids(topics) == [7]


async def test_ddl_has_a_ddl_topic_of_its_own(topics: kafka.Kafka) -> None:
    drop = ChangeEvent.from_document(
        {"_id": {"_data": "82"}, "operationType": "drop", "ns": {"db": "shop", "coll": "orders"}}
    )
    name = f"{topics.prefix}-ddl"
    for once in (True, False):
        async with opened(topics, ddl_topic=name, exactly_once=once) as bus:
            if once:
                await bus.begin(scope())
            await bus.on_ddl(drop, scope())
    found = topics.messages(name)
    assert [(each.key(), b'"drop"' in (each.value() or b"")) for each in found] == [
        (None, True)
    ] * 2


async def test_a_trial_asks_the_broker_whether_topics_can_be_created(topics: kafka.Kafka) -> None:
    trial = Trial([Scope("orders", "shop", "orders"), Scope("all")], "")
    async with opened(topics, exactly_once=True) as bus:
        told = await bus.attempt(trial)
        assert f"topic {topics.prefix}.shop.orders can be created" in told
        assert f"topic {topics.prefix}-positions can be created" in told
        assert topics.topics() == []
        assert await bus.begin(scope()) is None
        await bus.write(batch(event(), position="a"))
        assert "can be" not in await bus.attempt(trial)


# --- refusals and outages --------------------------------------------------------------------


async def test_messages_that_the_broker_refuses_are_found_one_by_one(topics: kafka.Kafka) -> None:
    """The others of the batch may have been stored, so it cannot be refused in part."""
    large = event(2, text="x" * 50_000)
    async with opened(topics) as bus:
        await bus.write(batch(event(0)))
        limit_messages(topics, 10_000)
        with pytest.raises(PermanentError, match=r"event \d: the broker says: .* too large"):
            await bus.write(batch(event(1), large, event(3)))
        await bus.write(batch(event(1)))
        with pytest.raises(Refused) as refused:
            await bus.write(batch(large))
        assert set(refused.value.reasons) == {0}
        await bus.write(batch(event(3)))
    assert [each for each in ids(topics) if each != 2][-2:] == [1, 3]
    assert 2 not in ids(topics)


async def test_exactly_once_aborts_what_the_broker_refuses_in_part(topics: kafka.Kafka) -> None:
    """Nothing of the batch is seen, and the rest of it is written once."""
    large = event(2, text="x" * 50_000)
    async with opened(topics, exactly_once=True, client={"batch.num.messages": 1}) as bus:
        await bus.begin(scope())
        await bus.write(batch(event(0), position="a"))
        limit_messages(topics, 10_000)
        with pytest.raises(Refused) as refused:
            await bus.write(batch(event(1), large, event(3), position="b", former="a"))
        assert 2 not in refused.value.reasons
        assert 1 in refused.value.reasons
        assert await bus.begin(scope()) == "a"
        await bus.write(batch(event(1), event(3), position="b", former="a"))
        assert await bus.begin(scope()) == "b"
    assert ids(topics) == [0, 1, 3]
    assert len(topics.server.messages(topics.topics()[0], isolation="read_uncommitted")) > 3


@pytest.mark.parametrize(
    ("servers", "told"), [("127.0.0.1:1", "Connection refused"), ("no.such.host.invalid:1", "")]
)
async def test_brokers_that_are_not_there_are_told_in_a_line(
    topics: kafka.Kafka, servers: str, told: str
) -> None:
    with pytest.raises(Unavailable) as raised:
        async with opened(topics, bootstrap_servers=servers):
            pass
    assert str(raised.value).startswith("handlers.bus.bootstrap_servers: ")
    assert servers in str(raised.value)
    assert told in str(raised.value)


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_a_silent_broker_is_an_outage_after_delivery_timeout_seconds(
    topics: kafka.Kafka, exactly_once: bool
) -> None:
    """It may have taken the batch; the next try uses another producer."""
    more = {"exactly_once": exactly_once, "delivery_timeout_seconds": 3}
    async with opened(topics, **more) as bus:
        former = None
        for number in range(2):
            if exactly_once:
                former = await bus.begin(scope())
            await bus.write(batch(event(number), position=str(number), former=former))
        topics.pause()
        try:
            with pytest.raises(Unavailable, match=r"handlers\.bus"):
                await bus.write(batch(event(2), position="2", former="1"))
        finally:
            topics.start()
        with anyio.fail_after(60):
            while exactly_once:
                try:
                    former = await bus.begin(scope())
                    break
                except Unavailable:
                    await anyio.sleep(0.1)
            while former != "2":
                try:
                    await bus.write(batch(event(2), position="2", former="1"))
                    break
                except Unavailable:
                    await anyio.sleep(0.1)
    found = ids(topics)
    assert found == [0, 1, 2] if exactly_once else found[:3] == [0, 1, 2]
    assert set(found) == {0, 1, 2}


async def test_a_cancelled_write_ends_and_sends_nothing_more(topics: kafka.Kafka) -> None:
    async with opened(topics, delivery_timeout_seconds=60) as bus:
        await bus.write(batch(event(0)))
        topics.pause()
        try:
            with anyio.move_on_after(0.3) as limit:
                await bus.write(batch(event(1)))
        finally:
            topics.start()
        assert limit.cancelled_caught
        await bus.write(batch(event(2)))
    assert [each for each in ids(topics) if each != 1] == [0, 2]


# --- positions -------------------------------------------------------------------------------


async def test_a_later_process_fences_an_earlier_one(topics: kafka.Kafka) -> None:
    async with opened(topics, exactly_once=True) as one, opened(topics, exactly_once=True) as two:
        await one.begin(scope(epoch=1))
        await one.write(batch(event(1), position="a"))
        assert await two.begin(scope(epoch=2)) == "a"
        with pytest.raises(Fenced):
            await one.write(batch(event(9), position="x", former="a"))
        with pytest.raises(Fenced):
            await one.begin(scope(epoch=1))
        await two.write(batch(event(2), epoch=2, position="b", former="a"))
        with pytest.raises(Fenced):
            await two.write(batch(event(3), epoch=2, position="c", former="a"))
        assert await one.begin(scope(epoch=3)) == "b"
        await one.write(batch(event(3), epoch=3, position="c", former="b"))
    assert ids(topics) == [1, 2, 3]


async def test_a_producer_that_was_fenced_begins_again_if_nobody_has_written(
    topics: kafka.Kafka,
) -> None:
    """Its transaction may have been open for too long, as after a pause."""
    async with opened(topics, exactly_once=True) as one, opened(topics, exactly_once=True) as two:
        await one.begin(scope())
        await two.begin(scope())
        with pytest.raises(TemporaryError, match="transaction_timeout_seconds"):
            await one.write(batch(event(1), position="a"))
        assert await one.begin(scope()) is None
        await one.write(batch(event(1), position="a"))
        with pytest.raises(Fenced):
            await two.write(batch(event(1), position="a"))
    assert ids(topics) == [1]


async def test_a_position_is_found_behind_many_others_and_after_open_transactions(
    topics: kafka.Kafka,
) -> None:
    name = f"{topics.prefix}-positions"
    more = {"exactly_once": True, "delivery_timeout_seconds": 1}
    async with opened(topics, **more) as bus:
        await bus.begin(scope())
        await bus.write(batch(position="a"))
        options = {
            "bootstrap.servers": topics.server.bootstrap_servers,
            "transactional.id": topics.prefix,
        }
        other = Producer(options)
        other.init_transactions(10)
        other.begin_transaction()
        for _ in range(1500):
            other.produce(name, b"{}", b"other/bus")
        other.flush(10)
        with pytest.raises(Unavailable, match=f"a transaction in topic {name} is open"):
            await bus.begin(scope())
        other.commit_transaction(10)
        assert await bus.begin(scope()) == "a"


async def test_a_positions_topic_of_several_partitions_is_not_used(topics: kafka.Kafka) -> None:
    name = f"{topics.prefix}-positions"
    topics.server.admin.create_topics([NewTopic(name, 2)])[name].result(10)
    async with opened(topics, exactly_once=True) as bus:
        with pytest.raises(Unavailable, match=r"positions_topic.*2 partitions instead of 1"):
            await bus.begin(scope())


async def test_transaction_timeout_seconds_above_the_limit_of_the_broker_is_told(
    topics: kafka.Kafka,
) -> None:
    async with opened(topics, exactly_once=True, transaction_timeout_seconds=3600) as bus:
        with pytest.raises(Unavailable, match=r"handlers\.bus.*transaction"):
            await bus.begin(scope())


# --- credentials -----------------------------------------------------------------------------


async def _write_for_ever(bus: Kafka) -> None:
    while True:
        await bus.write(batch(event(2)))
        await anyio.sleep(0.2)


def set_password(topics: kafka.Kafka, password: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    user = UserScramCredentialUpsertion("tailrace", info, password.encode())
    admin = topics.server.admin
    for result in admin.alter_user_scram_credentials([user]).values():
        result.result(10)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("first")
    return path


async def test_a_password_that_ends_is_read_again(topics: kafka.Kafka, secret: Path) -> None:
    """The broker asks for it again every two seconds, also on open connections."""
    set_password(topics, "first")
    more = {
        "bootstrap_servers": topics.server.guarded_servers,
        "security_protocol": "sasl_plaintext",
        "sasl_mechanism": "SCRAM-SHA-256",
        "username": "tailrace",
        "password": {"file": str(secret)},
    }
    async with opened(topics, **more) as bus:
        await bus.write(batch(event(1)))
        set_password(topics, "second")
        with anyio.fail_after(30), pytest.raises(Unavailable, match="username, password"):
            await _write_for_ever(bus)
        await to_thread.run_sync(secret.write_text, "second")
        await bus.write(batch(event(3)))
    assert (ids(topics)[0], ids(topics)[-1]) == (1, 3)
