"""Transactions of Kafka: who is fenced, and which position is found."""

import anyio
import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic
from structlog.testing import capture_logs

from tailrace.destination.handler_type import ProbeContext
from tailrace.errors import BatchTooLarge, Fenced, Unavailable
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
    """Its transaction may have been open for too long, as after a pause: that is an outage, so that
    no event becomes a dead letter for it."""
    async with opened(topics, exactly_once=True) as one, opened(topics, exactly_once=True) as two:
        await one.begin(scope())
        await two.begin(scope())
        with pytest.raises(BatchTooLarge, match="transaction_timeout_seconds"):
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
    more = {"exactly_once": True, "timeout_seconds": 1}
    async with opened(topics, **more) as bus:
        await begun(bus)
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


async def test_a_transaction_that_a_dead_process_left_open_is_ended_at_once(
    topics: kafka.Kafka,
) -> None:
    """``transaction_timeout_seconds`` is a minute."""
    async with opened(topics, exactly_once=True) as bus:
        await begun(bus)
        await bus.write(batch(event(1), position="a"))
        dead = Producer(
            {
                "bootstrap.servers": topics.server.bootstrap_servers,
                "transactional.id": f"{topics.prefix}-positions.bus.orders",
            }
        )
        dead.init_transactions(10)
        dead.begin_transaction()
        dead.produce(f"{topics.prefix}-positions", b"{}", b"orders/bus")
        dead.produce(f"{topics.prefix}.shop.orders", b"{}")
        dead.flush(10)
        with anyio.fail_after(20):
            assert await bus.begin(scope()) == "a"
        await bus.write(batch(event(2), position="b", former="a"))
    assert ids(topics) == [1, 2]


async def test_a_positions_topic_of_several_partitions_is_not_used(topics: kafka.Kafka) -> None:
    name = f"{topics.prefix}-positions"
    topics.server.admin.create_topics([NewTopic(name, 2)])[name].result(60)
    async with opened(topics, exactly_once=True) as bus:
        with pytest.raises(Unavailable, match=r"positions_topic.*2 partitions instead of 1"):
            await bus.begin(scope())


async def test_a_positions_topic_that_forgets_positions_is_told_by_a_probe(
    topics: kafka.Kafka,
) -> None:
    name = f"{topics.prefix}-positions"
    topics.server.admin.create_topics([NewTopic(name, 1)])[name].result(60)
    async with opened(topics, exactly_once=True) as bus:
        with pytest.raises(Unavailable, match=r"would lose positions.* compact instead of delete"):
            await bus.probe(ProbeContext([], ""))


async def test_transaction_timeout_seconds_above_the_limit_of_the_broker_is_told(
    topics: kafka.Kafka,
) -> None:
    async with opened(topics, exactly_once=True, transaction_timeout_seconds=3600) as bus:
        with pytest.raises(Unavailable, match=r"handlers\.bus.*transaction"):
            await bus.begin(scope())


@pytest.mark.parametrize("restarts", [False, True], ids=["while it runs", "before a start"])
async def test_a_positions_topic_that_is_deleted_is_made_again_and_said(
    topics: kafka.Kafka, restarts: bool
) -> None:
    name = f"{topics.prefix}-positions"
    async with opened(topics, exactly_once=True, timeout_seconds=3) as bus:
        await begun(bus)
        await bus.write(batch(event(1), position="a"))
        if not restarts:
            topics.server.admin.delete_topics([name])[name].result(60)
            with pytest.raises(Unavailable):
                await bus.write(batch(event(2), position="b", former="a"))
            with capture_logs() as logs:
                assert await begun(bus) is None
            await bus.write(batch(event(2), position="b"))
    if restarts:
        topics.server.admin.delete_topics([name])[name].result(60)
        async with opened(topics, exactly_once=True) as bus:
            with capture_logs() as logs:
                assert await until_available(lambda: bus.begin(scope(epoch=2))) is None
    (lost,) = [each for each in logs if each["event"] == "position.lost"]
    assert (lost["topic"], lost["log_level"]) == (name, "warning")
