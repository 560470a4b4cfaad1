"""The settings of a scope's snapshots."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tailrace.config.fields import Count, OpaqueMapping, Section, from_environment

CHUNK_BYTES = 4 * 2**20
"""Of a usual chunk: :mod:`tailrace.snapshot.pace`."""


def _mode_alone(value: Any) -> Any:
    value = from_environment(value)
    return {"mode": str(value)} if isinstance(value, str) else value


class SnapshotSettings(Section):
    """The documents that were there before the stream. `snapshot: initial` is short for a mapping
    with that mode."""

    mode: Literal["never", "initial"] = "never"
    """`initial` hands over the documents that are there when the scope starts without a checkpoint,
    as events of the type `read`, beside the changes. `never` hands over changes only."""

    filter: OpaqueMapping | None = None
    """A query filter: only documents that match are read. It does not apply to changes. It is fixed
    when a snapshot begins."""

    documents_per_second: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """The largest number of documents read per second; 0 means no limit."""

    chunk_documents: Count = 4096
    """The largest number of documents read at once. Changes wait while a chunk is read, so beside
    changes no more than 300 are read at once."""

    parallel: Count = 1
    """How many chunks are read at once: of several collections, and of ranges of a large one. More
    are quicker where the server reads from disks or is far away; near a server that has the data in
    memory, one is as quick. So many times 8 MiB must fit half of `delivery.max_in_flight_bytes`. It
    is fixed when a snapshot begins."""

    read_preference: (
        Literal["primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest"] | None
    ) = None
    """The members of the replica set to read documents from. Without it, the connection string
    decides. A secondary that lags behind delays changes."""


Snapshot = Annotated[SnapshotSettings, BeforeValidator(_mode_alone)]
