"""What an error of the client means: an outage, a refusal of records, or another owner.

Codes: https://kafka.apache.org/protocol#protocol_error_codes, and librdkafka's own (negative):
https://github.com/confluentinc/librdkafka/blob/master/src/rdkafka.h
"""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from tailrace.errors import Unavailable

_REFUSES_RECORD = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_MSG_SIZE,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.POLICY_VIOLATION,
    KafkaError.INVALID_RECORD,
}
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
_WITHOUT_TOPIC = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
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
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "username",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "positions_topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "positions_topic",
}
"""By code, what to look at in the configuration."""


def ends_waiting(error: KafkaError) -> bool:
    """Whether it is useless to wait for the brokers with this client."""
    return bool(error.fatal()) or error.code() in (
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
    )


def refuses_record(error: KafkaError) -> bool:
    """Whether the broker refuses the record itself, so that another attempt cannot help."""
    return error.code() in _REFUSES_RECORD


def fences(error: KafkaError) -> bool:
    """Whether a later producer with the same transactional id exists, or the broker gave up."""
    return error.code() in _FENCED


def is_late(error: KafkaError) -> bool:
    """Whether no broker confirmed a record in time. Why is another error's matter."""
    return error.code() == KafkaError._MSG_TIMED_OUT


def lacks_topic(error: KafkaError) -> bool:
    """Whether a topic is gone."""
    return error.code() in _WITHOUT_TOPIC


def outage(name: str, error: KafkaError, during: str = "") -> Unavailable:
    """The outage of handler ``name``, with the key to look at."""
    key = _KEYS.get(error.code(), "")
    place = f"handlers.{name}.{key}" if key else f"handlers.{name}"
    message = f"{during}: {error.str()}" if during else error.str()
    return Unavailable(f"{place}: {message}")


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
