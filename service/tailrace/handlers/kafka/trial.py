"""Tries what a start needs, and leaves nothing."""

from collections.abc import Collection

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

from tailrace.errors import Unavailable
from tailrace.handlers.kafka.connection import ANSWER_SECONDS, KafkaConnection
from tailrace.handlers.kafka.outcomes import classified
from tailrace.handlers.kafka.topics import Topics


def try_topics(connection: KafkaConnection, topics: Topics, names: Collection[str]) -> str:
    """Which topics exist, and whether the others could be created. Blocks.

    Raises :class:`Unavailable` for a topic that neither exists nor can be created, and for a
    ``ddl_topic`` that refuses messages without a key.
    """
    ddl = connection.settings.ddl_topic
    names = [*names, *([] if ddl is None else [ddl])]
    missing = topics.missing(names)
    if missing:
        topics.create(missing, only_try=True)
    if ddl is not None and ddl not in missing and "compact" in _cleanup_policy(connection, ddl):
        raise Unavailable(
            f"handlers.{connection.name}.ddl_topic: topic {ddl} is compacted, and takes no "
            "messages without a key: set its cleanup.policy to delete, or take another topic"
        )
    results = [f"topic {each} exists" for each in names if each not in missing]
    results += [f"topic {each} can be created" for each in missing]
    return "; ".join(results) or "the brokers answer"


def _cleanup_policy(connection: KafkaConnection, topic: str) -> str:
    """The setting of a topic that exists; empty without the right to read it, which ``run`` does
    not need either."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    with classified(connection.name, f"ddl_topic: the settings of {topic} cannot be read"):
        admin = connection.admin()
        answer = admin.describe_configs([resource], request_timeout=ANSWER_SECONDS)[resource]
        try:
            return str(answer.result()["cleanup.policy"].value)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            return ""
