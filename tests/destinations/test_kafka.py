"""What is special about Kafka: keys, topics, refusals by the broker, outages."""

from collections import Counter
from typing import Any

import anyio
import pytest
from confluent_kafka import KafkaException, murmur2
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from tailrace.destination.handler_type import ProbeContext
from tailrace.errors import PermanentError, Refused, Unavailable
from tailrace.event import ChangeEvent
from tailrace.model import Scope
from tests.destinations import kafka
from tests.destinations.kafka_calls import (
    batch,
    begun,
    event,
    ids,
    opened,
    scope,
    until_available,
)

ORDERS = "{}.shop.orders"


def create(topics: kafka.Kafka, name: str, **config: object) -> str:
    """Creates a topic of these options, dots as underscores, which it has from the first message
    on; returns its name. The broker applies a change of an option some time after its answer."""
    name = name.format(topics.prefix)
    options = {option.replace("_", "."): str(value) for option, value in config.items()}
    new = NewTopic(name, 1, config=options)
    topics.server.admin.create_topics([new])[name].result(60)
    return name


def configure(topics: kafka.Kafka, topic: str, name: str, value: object) -> None:
    """Changes an option of a topic. The broker applies it soon."""
    entry = ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
    place = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = topics.server.admin
    for result in admin.incremental_alter_configs([place]).values():
        result.result(60)


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
    created = topics.server.admin.list_topics(name, timeout=60).topics[name]
    assert [len(each.replicas) for each in created.partitions.values()] == [1, 1, 1]
    assert ids(topics) == [1]


@pytest.mark.parametrize("more", [{"create_topics": False}, {"replication_factor": 3}])
async def test_a_topic_that_is_neither_there_nor_created_is_waited_for(
    topics: kafka.Kafka, more: dict[str, Any]
) -> None:
    name = ORDERS.format(topics.prefix)
    async with opened(topics, **more) as bus:
        with pytest.raises(Unavailable, match=rf"handlers\.bus.*{name}"):
            await bus.write(batch(event()))
        create(topics, name)
        await bus.write(batch(event()))
    assert ids(topics) == [7]


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_events_whose_topic_the_broker_never_creates_are_refused_alone(
    topics: kafka.Kafka, exactly_once: bool
) -> None:
    """``a.b`` and ``a_b`` have the same metrics."""
    async with opened(topics, exactly_once=exactly_once) as bus:
        former = await begun(bus) if exactly_once else None
        await bus.write(batch(event(0, collection="a.b"), position="a", former=former))
        mixed = event(1), event(2, collection="a_b"), event(3)
        with pytest.raises(Refused, match=r"topic .*a_b cannot be created: .*collides") as refused:
            await bus.write(batch(*mixed, position="c", former="a"))
        assert set(refused.value.reasons) == {1}
        await bus.write(batch(mixed[0], mixed[2], position="c", former="a"))
        with pytest.raises(Unavailable, match="collides"):
            await bus.probe(ProbeContext([Scope("more", "shop", "a_b")], ""))
    assert ids(topics) == [1, 3]


async def test_ddl_has_a_ddl_topic_of_its_own(topics: kafka.Kafka) -> None:
    drop = ChangeEvent.from_document(
        {"_id": {"_data": "82"}, "operationType": "drop", "ns": {"db": "shop", "coll": "orders"}}
    )
    name = f"{topics.prefix}-ddl"
    for once in (True, False):
        async with opened(topics, ddl_topic=name, exactly_once=once) as bus:
            if once:
                await bus.begin(scope())
            await bus.on_ddl(drop)
    found = topics.messages(name)
    assert [(each.key(), b'"drop"' in (each.value() or b"")) for each in found] == [
        (None, True)
    ] * 2


async def test_a_compacted_ddl_topic_is_told_before_the_first_event_and_makes_no_dead_letter(
    topics: kafka.Kafka,
) -> None:
    name = create(topics, "{}-ddl", cleanup_policy="compact")
    async with opened(topics, ddl_topic=name) as bus:
        message = rf"ddl_topic: topic {name} is compacted.*cleanup\.policy"
        with pytest.raises(Unavailable, match=message):
            await bus.probe(ProbeContext([], ""))
        with pytest.raises(Unavailable, match=r"topic, ddl_topic: .*cleanup\.policy"):
            await bus.on_ddl(event(1, "drop"))
        configure(topics, name, "cleanup.policy", "delete")
        await until_available(lambda: bus.probe(ProbeContext([], "")))
        await until_available(lambda: bus.on_ddl(event(1, "drop")))


async def test_a_probe_asks_the_broker_whether_topics_can_be_created(topics: kafka.Kafka) -> None:
    context = ProbeContext([Scope("orders", "shop", "orders"), Scope("all")], "")
    async with opened(topics, exactly_once=True) as bus:
        message = await bus.probe(context)
        assert f"topic {topics.prefix}.shop.orders can be created" in message
        assert f"topic {topics.prefix}-positions can be created" in message
        assert topics.topics() == []
        assert await begun(bus) is None
        await bus.write(batch(event(), position="a"))
        assert "can be" not in await bus.probe(context)


# --- refusals and outages --------------------------------------------------------------------


async def test_messages_that_the_broker_refuses_are_found_one_by_one(topics: kafka.Kafka) -> None:
    """The others of the batch may have been stored, so it cannot be refused in part."""
    large = event(2, text="x" * 50_000)
    create(topics, ORDERS, max_message_bytes=10_000)
    async with opened(topics) as bus:
        await bus.write(batch(event(0)))
        with pytest.raises(PermanentError, match=r"event \d: the broker says: .* too large"):
            await bus.write(batch(event(1), large, event(3)))
        await bus.write(batch(event(1)))
        with pytest.raises(Refused) as refused:
            await bus.write(batch(large))
        assert set(refused.value.reasons) == {0}
        await bus.write(batch(event(3)))
    assert [each for each in ids(topics) if each != 2][-2:] == [1, 3]
    assert 2 not in ids(topics)


@pytest.mark.parametrize("together", [True, False])
async def test_exactly_once_aborts_what_the_broker_refuses_in_part(
    topics: kafka.Kafka, together: bool
) -> None:
    """Nothing of the batch is seen, and the rest of it is written once. The broker refuses those
    that were sent with the one at fault, too."""
    large = event(2, text="x" * 50_000)
    client = {} if together else {"batch.num.messages": 1}
    create(topics, ORDERS, max_message_bytes=10_000)
    async with opened(topics, exactly_once=True, client=client) as bus:
        await begun(bus)
        await bus.write(batch(event(0), position="a"))
        with pytest.raises(Refused, match=r"event 1: the broker says: .* too large") as refused:
            await bus.write(batch(event(1), large, event(3), position="b", former="a"))
        assert set(refused.value.reasons) == {1}
        assert await begun(bus) == "a"
        await bus.write(batch(event(1), event(3), position="b", former="a"))
        assert await begun(bus) == "b"
    assert ids(topics) == [0, 1, 3]


async def test_clocks_that_differ_are_an_outage_and_no_events_fault(topics: kafka.Kafka) -> None:
    """The broker takes no message that is a millisecond old. Those of a new client are older: it
    has to connect and log in first."""
    name = create(topics, ORDERS, message_timestamp_before_max_ms=0)
    async with opened(topics) as bus:
        with pytest.raises(Unavailable, match=r"handlers\.bus\.topic: .* compare the clocks"):
            await bus.write(batch(event(1)))
        with pytest.raises(PermanentError):  # librdkafka calls each of several an invalid record
            await bus.write(batch(event(1), event(2)))
        configure(topics, name, "message.timestamp.before.max.ms", 2**63 - 1)
        await until_available(lambda: bus.write(batch(event(1))))
    assert ids(topics) == [1]


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_a_topic_that_is_deleted_is_made_again(
    topics: kafka.Kafka, exactly_once: bool
) -> None:
    async with opened(topics, exactly_once=exactly_once, timeout_seconds=3) as bus:
        former = await begun(bus) if exactly_once else None
        await bus.write(batch(event(0), position="a", former=former))
        name = ORDERS.format(topics.prefix)
        topics.server.admin.delete_topics([name])[name].result(60)

        async def written() -> None:
            at = await bus.begin(scope()) if exactly_once else "a"
            if at == "a":
                await bus.write(batch(event(1), position="b", former=at))

        await until_available(written)
    assert ids(topics) == [1]


@pytest.mark.parametrize(
    ("servers", "message"), [("127.0.0.1:1", "Connection refused"), ("no.such.host.invalid:1", "")]
)
async def test_brokers_that_are_not_there_are_told_in_a_line(
    topics: kafka.Kafka, servers: str, message: str
) -> None:
    with pytest.raises(Unavailable) as raised:
        async with opened(topics, bootstrap_servers=servers):
            pass
    assert str(raised.value).startswith("handlers.bus.bootstrap_servers: ")
    assert servers in str(raised.value)
    assert message in str(raised.value)


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_a_silent_broker_is_an_outage_after_timeout_seconds(
    topics: kafka.Kafka, exactly_once: bool
) -> None:
    """It may have taken the batch; the next try uses another producer."""
    more = {"exactly_once": exactly_once, "timeout_seconds": 3}
    async with opened(topics, **more) as bus:
        former = None
        for number in range(2):
            if exactly_once:
                former = await begun(bus)
            await bus.write(batch(event(number), position=str(number), former=former))
        topics.pause()
        try:
            with pytest.raises(Unavailable, match=r"handlers\.bus"):
                await bus.write(batch(event(2), position="2", former="1"))
        finally:
            topics.start()
        if exactly_once:
            former = await begun(bus)
        if former != "2":
            again = batch(event(2), position="2", former="1")
            await until_available(lambda: bus.write(again))
    found = ids(topics)
    assert found == [0, 1, 2] if exactly_once else found[:3] == [0, 1, 2]
    assert set(found) == {0, 1, 2}


async def test_a_producer_with_a_fatal_error_is_replaced(topics: kafka.Kafka) -> None:
    """An idempotent one never works again, whatever the broker allows later."""
    async with opened(topics) as bus:
        await bus.write(batch(event(0)))
    async with opened(topics) as bus:
        message = r"handlers\.bus\.username: .* Cluster authorization failed"
        with (
            topics.server.denied(topics.prefix),
            pytest.raises(Unavailable, match=message) as raised,
        ):
            await bus.write(batch(event(1)))
        assert isinstance(raised.value.__cause__, KafkaException)
        assert raised.value.__cause__.args[0].fatal()
        await bus.write(batch(event(1)))
    assert ids(topics) == [0, 1]


async def test_sasl_mechanism_plain_and_ssl_ca_location_are_used_for_tls(
    topics: kafka.Kafka,
) -> None:
    server = topics.server
    tls = {
        "bootstrap_servers": server.tls_servers,
        "security_protocol": "sasl_ssl",
        "sasl_mechanism": "PLAIN",
        "username": "app",
        "password": "plain",
        "ssl_ca_location": str(server.authority),
    }
    async with opened(topics, **tls) as bus:
        await bus.write(batch(event(0)))
    with pytest.raises(Unavailable, match=r"handlers\.bus\.username, password: .*"):
        async with opened(topics, **{**tls, "password": "another"}):
            pass
    with pytest.raises(Unavailable, match=r"handlers\.bus\.security_protocol, ssl_ca_location: "):
        async with opened(topics, **{**tls, "ssl_ca_location": None}):
            pass
    assert ids(topics) == [0]


async def test_a_cancelled_write_ends_and_sends_nothing_more(topics: kafka.Kafka) -> None:
    async with opened(topics, timeout_seconds=60) as bus:
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
