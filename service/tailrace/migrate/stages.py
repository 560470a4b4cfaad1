"""Pipelines of peers, which are JSON, as the stages of a scope."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from bson import json_util

from tailrace.migrate.options import PeerOptions

_PLAIN = (str, int, float, bool, datetime, type(None))


def value_of(options: PeerOptions, name: str) -> Any:
    """Uses an option that is JSON; ``None`` if it is missing, or cannot be in our file."""
    if not (text := options.take(name)):
        return None
    try:
        value = json_util.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        options.lose(name, f"is no JSON: {' '.join(str(error).split())}")
        return None
    if strange := next(_strange(value), None):
        options.lose(name, f"has a value of type {strange}, which a file in YAML cannot have")
        return None
    return value


def stages_of(options: PeerOptions, name: str) -> list[dict[str, Any]]:
    """Uses an option that is a pipeline."""
    value = value_of(options, name)
    if value is None:
        return []
    stages = value if isinstance(value, list) else [value]
    if all(isinstance(stage, dict) for stage in stages):
        return stages
    options.lose(name, "is no list of stages")
    return []


def _strange(value: Any) -> Iterator[str]:
    """The types that YAML does not have."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strange(item)
    elif not isinstance(value, _PLAIN):
        yield type(value).__name__
