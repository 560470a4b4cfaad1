"""How the server presents itself; every field may be changed while it runs."""

from dataclasses import dataclass
from typing import Literal

MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What kind of server this poses as. The defaults are a current mongod."""

    max_wire_version: int = 21
    """21 is MongoDB 7.0. PyMongo 4.20 refuses a set whose *monitors* see less than 9."""

    post_batch_tokens: bool = True
    """Whether replies carry a postBatchResumeToken (servers before 4.0.7 have none)."""

    streaming_hello: bool = True
    """Whether hello bears a topologyVersion, so that drivers wait for changes inside hello and
    notice an election at once. Without it they poll every heartbeatFrequencyMS."""

    history_lost_on: Literal["reading", "aggregate", "getMore"] = "reading"
    """Which command reports that a start point is older than the oplog. mongod notices when it
    reads: in an aggregate that asks for events, else in the first getMore."""

    scan_seconds: float = 0.0
    """How long the first search from a start point in the past takes: of an aggregate that asks for
    events, else of the first getMore, whose maxTimeMS does not cut it."""

    default_max_time_ms: int = 0
    """The limit of commands (but for getMore) that do not say theirs, as `defaultMaxTimeMS` of
    MongoDB 8.0; 0 is none."""

    reply_bytes: int = 16 * MEGABYTE
    """How many bytes of events go into one reply, at least one event. Drivers give up above
    `maxMessageSizeBytes` (48,000,000)."""
