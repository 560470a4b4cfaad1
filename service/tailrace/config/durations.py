"""Spans of time as text with a unit, such as ``24h``; as a value, a number of seconds."""

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from tailrace.config.fields import DAY, from_environment

_TEXT = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": DAY}


def _seconds(text: str) -> float | None:
    read = _TEXT.fullmatch(text)
    return float(read[1]) * _SECONDS[read[2]] if read is not None else None


def _at_least(least: str, examples: str) -> Callable[[Any], float]:
    fewest = _seconds(least)
    assert fewest is not None  # noqa: S101 - ours

    def seconds(value: Any) -> float:
        read = _seconds(str(from_environment(value)).strip())
        if read is None:
            raise ValueError(f"must be a number with a unit (s, m, h or d), such as {examples}")
        if not fewest <= read <= 366 * DAY:
            raise ValueError(f"must be at least {least} and at most 366d")
        return read

    return seconds


_AS_TEXT = PlainSerializer(lambda seconds: f"{seconds:g}s")

Interval = Annotated[
    float,
    PlainValidator(_at_least("1m", "24h or 90m")),
    _AS_TEXT,
    WithJsonSchema({"type": "string", "examples": ["24h", "90m"]}),
]
"""The time between two repetitions of something costly."""

MaxLag = Annotated[
    float,
    PlainValidator(_at_least("1s", "30s or 5m")),
    _AS_TEXT,
    WithJsonSchema({"type": "string", "examples": ["30s", "5m"]}),
]
"""By how much something may be behind."""
