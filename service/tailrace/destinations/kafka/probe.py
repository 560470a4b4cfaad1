"""Tries what a start needs, and leaves nothing."""

from collections.abc import Collection

from tailrace.destinations.kafka.connection import KafkaConnection
from tailrace.destinations.kafka.topics import Topics, cleanup_policy
from tailrace.errors import Unavailable


def probe_topics(connection: KafkaConnection, topics: Topics, names: Collection[str]) -> str:
    """Which topics exist, and whether the others could be created. Blocks.

    Raises :class:`Unavailable` for a topic that neither exists nor can be created, and for a
    ``ddl_topic`` that refuses messages without a key.
    """
    ddl = connection.settings.ddl_topic
    names = [*names, *([] if ddl is None else [ddl])]
    missing = topics.missing(names)
    if missing:
        topics.create(missing, only_try=True)
    if (
        ddl is not None
        and ddl not in missing
        and "compact" in cleanup_policy(connection, ddl, "ddl_topic")
    ):
        raise Unavailable(
            f"handlers.{connection.name}.ddl_topic: topic {ddl} is compacted, and takes no "
            "messages without a key: set its cleanup.policy to delete, or take another topic"
        )
    results = [f"topic {topic} exists" for topic in names if topic not in missing]
    results += [f"topic {topic} can be created" for topic in missing]
    return "; ".join(results) or "the brokers answer"
