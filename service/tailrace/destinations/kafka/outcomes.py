"""What an error of the client means: an outage, a refusal of records, or another owner.

Codes: https://kafka.apache.org/protocol#protocol_error_codes, and librdkafka's own (negative):
https://github.com/confluentinc/librdkafka/blob/master/src/rdkafka.h
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto

from confluent_kafka import KafkaError, KafkaException

from tailrace.errors import Unavailable


class About(Enum):
    """What an error says something about."""

    RECORD = auto()
    """This record: another attempt cannot help."""
    BATCH = auto()
    """The records that were sent together: another one of them is at fault."""
    DESTINATION = auto()
    """Brokers, topic, clock, rights, quota: any record would fail, until that changes."""


_ABOUT = {
    # Broker: larger than the topic's max.message.bytes (UnifiedLog.analyzeAndValidateRecords).
    # librdkafka: larger than message.max.bytes (rd_kafka_produce).
    KafkaError.MSG_SIZE_TOO_LARGE: About.RECORD,
    # Larger than the topic's segment.bytes (UnifiedLog.append).
    KafkaError.RECORD_LIST_TOO_LARGE: About.RECORD,
    # LogValidator, or a validator of the broker's own. A record without a key: see about().
    KafkaError.INVALID_RECORD: About.RECORD,
    # librdkafka, for the others if the broker names records (KIP-467).
    KafkaError._INVALID_DIFFERENT_RECORD: About.BATCH,
}
"""By code, for errors of records. Every other code is about the destination: a wrong wait can be
seen and loses nothing, a wrong refusal sets events aside. Names in brackets: where the code comes
from."""
_FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
}
_OUR_MISTAKE = {
    KafkaError._STATE,
    KafkaError._INVALID_ARG,
    KafkaError._CONFLICT,
    KafkaError._NOT_IMPLEMENTED,
}
_KEYS = {
    KafkaError._AUTHENTICATION: "username, password",
    KafkaError.SASL_AUTHENTICATION_FAILED: "username, password",
    KafkaError.UNSUPPORTED_SASL_MECHANISM: "sasl_mechanism",
    KafkaError._SSL: "security_protocol, ssl_ca_location",
    KafkaError._RESOLVE: "bootstrap_servers",
    KafkaError._TRANSPORT: "bootstrap_servers",
    KafkaError._ALL_BROKERS_DOWN: "bootstrap_servers",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.TOPIC_EXCEPTION: "topic",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "username",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "positions_topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "positions_topic",
    KafkaError.INVALID_TIMESTAMP: "topic",
    KafkaError.INVALID_RECORD: "topic, ddl_topic",
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: "topic",
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE: "client",
}
"""By code, what to look at in the configuration."""
_HINTS = {
    # LogValidator.validateTimestamp: message.timestamp.before.max.ms and .after.max.ms.
    KafkaError.INVALID_TIMESTAMP: "compare the clocks of this host and of the broker, and the "
    "topic's message.timestamp.before.max.ms and message.timestamp.after.max.ms",
    # LogValidator.validateKey
    KafkaError.INVALID_RECORD: "it has no key, and the topic is compacted: set its cleanup.policy "
    "to delete, or take another topic",
    # Errors.CORRUPT_MESSAGE: damaged on its way, so a repetition helps; without a key and from
    # older brokers, as INVALID_RECORD.
    KafkaError.INVALID_MSG: "damaged on its way, or without a key in a compacted topic",
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: "raise the topic's message.format.version",
}
"""By code, what to do, where the broker's words do not say it."""


def ends_waiting(error: KafkaError) -> bool:
    """Whether it is useless to wait for the brokers with this client."""
    return bool(error.fatal()) or error.code() in (
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
    )


def about(error: KafkaError, *, keyed: bool = True) -> About:
    """What the error of a record says something about. ``keyed``: the record has a key.

    Without one a compacted topic refuses every record, whatever the event.
    """
    if error.code() == KafkaError.INVALID_RECORD and not keyed:
        return About.DESTINATION
    return _ABOUT.get(error.code(), About.DESTINATION)


def fences(error: KafkaError) -> bool:
    """Whether a later producer with the same transactional id exists, or the broker gave up."""
    return error.code() in _FENCED


def is_late(error: KafkaError) -> bool:
    """Whether no broker confirmed a record in time. Why is another error's matter."""
    return error.code() == KafkaError._MSG_TIMED_OUT


def outage(name: str, error: KafkaError, during: str = "") -> Unavailable:
    """The outage of handler ``name``, with the key to look at."""
    key = _KEYS.get(error.code(), "")
    path = f"handlers.{name}.{key}" if key else f"handlers.{name}"
    said = error.str()
    if hint := _HINTS.get(error.code()):
        said = f"{said}: {hint}"
    message = f"{during}: {said}" if during else said
    return Unavailable(f"{path}: {message}")


@contextmanager
def classified(name: str, during: str) -> Iterator[None]:
    """Raises :class:`Unavailable` for an error of the client that is no mistake of our own."""
    try:
        yield
    except KafkaException as raised:
        error = raised.args[0]
        if error.code() in _OUR_MISTAKE and not error.fatal():
            raise
        raise outage(name, error, during) from raised
