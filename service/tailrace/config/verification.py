"""The settings of the verifications that begin by themselves."""

from typing import Annotated

from pydantic import Field

from tailrace.config.durations import Interval
from tailrace.config.fields import Section


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
