"""What kind of server it simulates; every field may be changed while it runs."""

from dataclasses import dataclass
from typing import Literal

MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The kind of server that is simulated. The defaults are those of a current mongod."""

    max_wire_version: int = 21
    """21 is MongoDB 7.0. PyMongo 4.20 refuses a set whose *monitors* see less than 9."""

    post_batch_tokens: bool = True
    """Whether replies carry a postBatchResumeToken (servers before 4.0.7 have none)."""

    streaming_hello: bool = True
    """Whether hello has a topologyVersion, so that drivers wait inside hello and notice an election
    at once. Without it they poll every heartbeatFrequencyMS."""

    history_lost_on: Literal["reading", "aggregate"] = "reading"
    """Which command reports that a start point is older than the oplog. mongod notices when it
    reads: in an aggregate that asks for events, else in the first getMore."""

    scan_seconds: float = 0.0
    """Duration of the first scan from a start point in the past. It happens in an aggregate that
    asks for events, else in the first getMore, whose maxTimeMS does not end it."""

    default_max_time_ms: int = 0
    """The time limit of commands without maxTimeMS (except getMore), like `defaultMaxTimeMS` of
    MongoDB 8.0; 0 means no limit."""

    reply_bytes: int = 16 * MEGABYTE
    """The most bytes of events in one reply, which has at least one event. Drivers fail above
    `maxMessageSizeBytes` (48,000,000)."""
