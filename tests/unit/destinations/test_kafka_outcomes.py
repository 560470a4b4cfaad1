"""What an error of Kafka says something about: this event, or the destination."""

import pytest
from confluent_kafka import KafkaError

from tailrace.destinations.kafka.at_least_once import failure
from tailrace.destinations.kafka.outcomes import About, about, outage
from tailrace.destinations.kafka.records import POSITION, Record
from tailrace.errors import PermanentError, Refused, Unavailable

CODES = {
    value: name
    for name in dir(KafkaError)
    if name.strip("_").isupper() and isinstance(value := getattr(KafkaError, name), int)
}
"""Every code that the client knows."""

RECORD = {
    KafkaError.MSG_SIZE_TOO_LARGE: About.RECORD,
    KafkaError.RECORD_LIST_TOO_LARGE: About.RECORD,
    KafkaError.INVALID_RECORD: About.RECORD,
    KafkaError._INVALID_DIFFERENT_RECORD: About.BATCH,
}
"""All others are about the destination. Those that look as if they were about the event are:"""
DESTINATION = {
    KafkaError.INVALID_TIMESTAMP: "topic: .* compare the clocks",
    KafkaError.POLICY_VIOLATION: "Policy violation",
    KafkaError.INVALID_MSG: "damaged on its way",
    KafkaError.INVALID_MSG_SIZE: "Invalid message size",
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: "topic: .* message.format.version",
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE: "client: ",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic: ",
    KafkaError.TOPIC_EXCEPTION: "topic: ",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "username: ",
    KafkaError.NOT_ENOUGH_REPLICAS: "in-sync replicas",
    KafkaError.KAFKA_STORAGE_ERROR: "Disk error",
    KafkaError.THROTTLING_QUOTA_EXCEEDED: "quota",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "Unknown topic",
    KafkaError.INVALID_REQUIRED_ACKS: "acks",
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS: "load in progress",
    KafkaError._TRANSPORT: "bootstrap_servers: ",
    KafkaError._AUTHENTICATION: "username, password: ",
    KafkaError._MSG_TIMED_OUT: "timed out",
}


def record(at: int = 0, key: bytes | None = b"k") -> Record:
    return Record(at, "app.shop.orders", key, b"{}", [])


@pytest.mark.parametrize("code", sorted(CODES), ids=lambda code: CODES[code])
def test_every_code_is_about_the_record_or_about_the_destination(code: int) -> None:
    """A wrong wait can be seen and loses nothing, a wrong refusal sets events aside."""
    assert about(KafkaError(code)) is RECORD.get(code, About.DESTINATION)


@pytest.mark.parametrize("code", DESTINATION, ids=lambda code: CODES[code])
def test_what_is_about_the_destination_is_waited_for_and_says_what_to_look_at(code: int) -> None:
    for events in (1, 2):
        raised = failure("bus", [record()], {0: KafkaError(code)}, events)
        assert isinstance(raised, Unavailable)
        assert str(raised).startswith("handlers.bus")
    with pytest.raises(Unavailable, match=DESTINATION[code]):
        raise outage("bus", KafkaError(code))


def test_a_record_without_a_key_is_refused_by_a_compacted_topic_whatever_its_event() -> None:
    refused = {0: KafkaError(KafkaError.INVALID_RECORD)}
    with pytest.raises(Unavailable, match=r"topic, ddl_topic: .* set its cleanup\.policy"):
        raise failure("bus", [record(key=None)], refused, 1)
    assert isinstance(failure("bus", [record()], refused, 1), Refused)


def test_an_event_is_named_only_if_it_was_sent_alone() -> None:
    """The broker refuses a whole batch of records for one of them."""
    other, own = KafkaError._INVALID_DIFFERENT_RECORD, KafkaError.INVALID_RECORD
    failed = {0: KafkaError(other), 1: KafkaError(own), 2: KafkaError(KafkaError._MSG_TIMED_OUT)}
    assert isinstance(failure("bus", list(map(record, range(3))), failed, 3), PermanentError)
    alone = failure("bus", [record()], {0: KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)}, 1)
    assert isinstance(alone, Refused)
    assert set(alone.reasons) == {0}


def test_a_position_that_is_refused_is_no_events_fault() -> None:
    failed = {POSITION: KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)}
    assert isinstance(failure("bus", [record(), record(POSITION)], failed, 1), Unavailable)
