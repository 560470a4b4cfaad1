"""Tries what a start needs, and leaves nothing."""

from collections.abc import Collection

from tailrace.handlers.kafka.topics import Topics


def try_topics(topics: Topics, names: Collection[str]) -> str:
    """Which topics exist, and whether the others could be created. Blocks.

    Raises :class:`Unavailable` for a topic that neither exists nor can be created.
    """
    missing = topics.missing(names)
    if missing:
        topics.create(missing, only_try=True)
    results = [f"topic {each} exists" for each in names if each not in missing]
    results += [f"topic {each} can be created" for each in missing]
    return "; ".join(results) or "the brokers answer"
