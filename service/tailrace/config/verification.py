"""The settings of the verifications that begin by themselves."""

import re
from typing import Annotated, Any

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema

from tailrace.config.fields import DAY, Section, from_environment

_INTERVAL = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": DAY}
_LEAST, _MOST = 60, 366 * DAY


def _seconds(value: Any) -> float:
    read = _INTERVAL.fullmatch(str(from_environment(value)).strip())
    if read is None:
        raise ValueError("must be a number with a unit (s, m, h or d), such as 24h or 90m")
    seconds = float(read[1]) * _SECONDS[read[2]]
    if not _LEAST <= seconds <= _MOST:
        raise ValueError("must be at least 1m and at most 366d")
    return seconds


Interval = Annotated[
    float,
    PlainValidator(_seconds),
    PlainSerializer(lambda seconds: f"{seconds:g}s"),
    WithJsonSchema({"type": "string", "examples": ["24h", "90m"]}),
]
"""Text such as ``24h``, as a number of seconds."""


class VerificationSettings(Section):
    """How often all rows of the handlers of a route are compared with the source. Without it they
    are when somebody asks. Of the routes of a handler and a scope, those that have this key must
    agree."""

    every: Interval
    """How long after the end of one the next verification begins, as a number with a unit: `s`,
    `m`, `h` or `d`. At least `1m`. The first one begins at once."""

    documents_per_second: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 500.0
    """The largest number of documents compared per second; 0 means no limit. 500 take a few
    hundredths of a core."""
