"""Topics of Kafka, read from their beginning, compared with documents."""

from collections.abc import Mapping
from typing import Any

import pytest
from bson import Int64
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.cimpl import NewPartitions

from tailrace import Unavailable
from tailrace.errors import ScopeHalted
from tailrace.event import Namespace
from tailrace.model import Scope
from tailrace.testing import Changes
from tests.destinations import kafka
from tests.destinations.calling import opened
from tests.destinations.comparing import compared
from tests.destinations.test_postgresql_values import IDS, ODD
from tests.handlers import OWNER, deliver


@pytest.fixture
def bus(topics: kafka.Kafka) -> dict[str, Any]:
    """The handler, with a patience for a slow machine."""
    return {**topics.handler, "timeout_seconds": 30}


def topic_of(topics: kafka.Kafka) -> str:
    return f"{topics.prefix}.shop.orders"


@pytest.mark.parametrize(
    "more",
    [
        {"json": "canonical"},
        {"exactly_once": True},
        {"envelope": "debezium"},
        {"envelope": "cloudevents"},
        {"envelope": "cloudevents", "content_mode": "binary", "json": "canonical"},
        {"envelope": "document", "fields": {"leave_out": ["secret"]}, "headers": False},
    ],
    ids=lambda more: " ".join(map(str, more.values())),
)
async def test_what_topics_amount_to_is_compared_with_documents(
    topics: kafka.Kafka, bus: dict[str, Any], changes: Changes, more: Mapping[str, Any]
) -> None:
    async with opened({**bus, **more}) as handler:
        if handler.position is not None:
            await handler.position.load(OWNER)
        documents: list[Any] = [{"_id": each, "n": 1, "secret": 2} for each in IDS]
        documents.append({"_id": "odd", **{name: value for name, (_, value) in ODD.items()}})
        events = [changes.insert(each) for each in documents]
        events += [changes.insert({"_id": n, "n": Int64(n), "x": -0.0}) for n in range(500, 1000)]
        events += [changes.update(n, {"n": 0}) for n in range(500, 510)]
        events += [changes.delete(n) for n in range(510, 520)]
        await deliver(handler, *events)
        found = await compared(handler, changes)
        assert not found, found
        last = {message.key(): message.value() for message in topics.messages()}
        number = "520" if more.get("envelope") == "debezium" else '"520"'
        key = next(each for each in last if number.encode() in each)
        another = next(each for each in last if number.replace("520", "521").encode() in each)
        third = next(each for each in last if number.replace("520", "522").encode() in each)
        changed = last[key].replace(b"-0.0", b"0.0")
        assert changed != last[key]
        topics.send(key, changed)
        topics.send(another, None)
        topics.send(third, "no message")
        topics.send(key.replace(b"520", b"999520"), last[key])
        topics.send("no key", last[key])
        found = await compared(handler, changes)
    assert found.different == {520: ["x"], 522: [*found.different[522]]}
    assert found.missing == [521]
    assert len(found.too_many) == 2


async def test_only_committed_messages_count(
    topics: kafka.Kafka,
    bus: dict[str, Any],
    changes: Changes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened(bus) as handler:
        await deliver(handler, *[changes.insert({"_id": n}) for n in range(3)])
        options = {
            "bootstrap.servers": topics.server.bootstrap_servers,
            "transactional.id": topics.prefix,
            "log_level": 0,
        }
        producer = Producer(options)
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(topic_of(topics), None, '{"_id":{"$numberInt":"1"}}')
        producer.flush()
        patience = "tailrace.destinations.kafka.folded_topics.PATIENCE_SECONDS"
        with monkeypatch.context() as patient:
            patient.setattr(patience, 3.0)
            with pytest.raises(Unavailable, match="a transaction in"):
                await compared(handler, changes)
        producer.abort_transaction()
        assert not await compared(handler, changes)


async def test_a_topic_without_its_beginning_proves_nothing(
    topics: kafka.Kafka, bus: dict[str, Any], changes: Changes
) -> None:
    async with opened(bus) as handler:
        await deliver(handler, *[changes.insert({"_id": n}) for n in range(3)])
        cut = topics.server.admin.delete_records([TopicPartition(topic_of(topics), 0, 1)])
        for result in cut.values():
            result.result(60)
        with pytest.raises(ScopeHalted, match=r"begins at offset 1: .*cleanup.policy=compact"):
            await compared(handler, changes)


async def test_a_key_whose_messages_are_in_two_partitions_has_its_last_one(
    topics: kafka.Kafka, bus: dict[str, Any], changes: Changes
) -> None:
    async with opened(bus) as handler:
        await deliver(handler, *[changes.insert({"_id": n, "n": 1}) for n in range(20)])
        created = topics.server.admin.create_partitions([NewPartitions(topic_of(topics), 4)])
        for result in created.values():
            result.result(60)
    async with opened(bus) as handler:
        await deliver(handler, *[changes.update(n, {"n": 2}) for n in range(20)])
        assert not await compared(handler, changes)


async def test_messages_of_other_collections_in_a_topic_are_not_compared(
    topics: kafka.Kafka, bus: dict[str, Any], changes: Changes
) -> None:
    given = {**bus, "topic": topic_of(topics)}
    async with opened(given) as handler, opened(given, Scope("users", "shop", "users")) as others:
        users = changes.elsewhere("users")
        await deliver(handler, *[changes.insert({"_id": n}) for n in range(3)])
        await deliver(others, *[users.insert({"_id": n}) for n in range(9)])
        assert not await compared(handler, changes)
    async with opened(given, Scope("orders", "shop")) as handler:
        with pytest.raises(ScopeHalted, match="of several collections, with the same keys"):
            await compared(handler, changes)
    every = {**bus, "topic": f"{topics.prefix}.{{database}}.{{collection}}"}
    async with opened(every, Scope("orders", "shop")) as handler:
        assert (await compared(handler, users, Namespace("shop", "users"))).missing == [*range(9)]
