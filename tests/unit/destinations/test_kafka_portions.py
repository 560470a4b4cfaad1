"""A batch that the brokers cannot confirm in time is sent in smaller parts."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import pytest
from confluent_kafka import KafkaError

from tailrace.destinations.kafka import at_least_once, sender
from tailrace.destinations.kafka.at_least_once import Kafka
from tailrace.destinations.kafka.connection import KafkaConnection
from tailrace.destinations.kafka.records import Record
from tailrace.destinations.kafka.sender import TooSlow
from tailrace.destinations.kafka.topics import Topics
from tailrace.errors import Unavailable
from tests.handlers import opening
from tests.unit.destinations.test_kafka_records import batch, event, settings


class SlowBrokers:
    """Confirm at most so many records of a call; 0: they do not answer."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.calls: list[list[int]] = []

    def send(self, records: Sequence[Record], began: float) -> dict[int, object]:
        self.calls.append([record.at for record in records])
        if self.most == 0:
            raise Unavailable("the brokers confirmed nothing")
        if len(records) > self.most:
            raise TooSlow("the brokers confirmed only a part")
        return {}

    def drop(self) -> None: ...


Write = Callable[[SlowBrokers, int], Awaitable[None]]


@pytest.fixture
def write(monkeypatch: pytest.MonkeyPatch) -> Write:
    """Delivers a batch of so many events until it is confirmed."""
    bus = Kafka(opening("bus"), settings())
    monkeypatch.setattr(Topics, "require", lambda topics, names: None)

    async def deliver(brokers: SlowBrokers, count: int) -> None:
        monkeypatch.setattr(at_least_once, "Sender", lambda connection, options: brokers)
        await bus.write(batch(*[event() for _ in range(count)]))

    return deliver


async def test_the_half_is_tried_and_is_the_size_from_then_on(write: Write) -> None:
    brokers = SlowBrokers(3)
    for _ in range(2):
        with pytest.raises(TooSlow):
            await write(brokers, 10)
    await write(brokers, 10)
    await write(brokers, 3)
    assert brokers.calls[1:2] == [[0, 1, 2, 3, 4]]
    assert brokers.calls[2:] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [0, 1], [2]]


class Producer:
    """Confirms the first records of a call, and no others in time."""

    def __init__(self, options: object, most: int) -> None:
        self.most = most
        self.count = 0

    def produce(self, *record: object, on_delivery: Callable[..., None], headers: object) -> None:
        self.count += 1
        if self.count > self.most:
            on_delivery(KafkaError(KafkaError._MSG_TIMED_OUT), None)

    def flush(self, seconds: float) -> int:
        return 0


@pytest.mark.parametrize(("most", "is_slow"), [(0, False), (1, True), (2, True), (3, None)])
def test_brokers_are_slow_if_they_confirm_a_part_in_time(
    monkeypatch: pytest.MonkeyPatch, most: int, is_slow: bool | None
) -> None:
    monkeypatch.setattr(sender, "Producer", partial(Producer, most=most))
    made = sender.Sender(KafkaConnection("bus", settings()), {})
    batch_of_three = [Record(at, "t", b"k", b"v", []) for at in range(3)]
    if is_slow:
        with pytest.raises(TooSlow, match="smaller parts"):
            made.send(batch_of_three)
    else:
        assert len(made.send(batch_of_three)) == 3 - most


async def test_brokers_that_do_not_answer_make_no_batch_smaller(write: Write) -> None:
    silent = SlowBrokers(0)
    for _ in range(3):
        with pytest.raises(Unavailable):
            await write(silent, 4)
    assert silent.calls == [[0, 1, 2, 3]] * 3
