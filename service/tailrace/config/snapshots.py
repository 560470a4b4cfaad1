"""The settings of a scope's snapshots."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tailrace.config.fields import Count, OpaqueMapping, Section, from_environment

CHUNK_BYTES = 4 * 2**20
"""The usual size of a chunk, as in :mod:`tailrace.snapshot.pace`."""


def _mode_alone(value: Any) -> Any:
    value = from_environment(value)
    return {"mode": str(value)} if isinstance(value, str) else value


class SnapshotSettings(Section):
    """How existing documents are read. `snapshot: initial` is short for a mapping with that
    mode."""

    mode: Literal["never", "initial"] = "never"
    """`initial` delivers the documents that exist when a handler begins without a position, at the
    first start of its scope or later, as events of the type `read`, beside the changes. `never`
    delivers changes only."""

    filter: OpaqueMapping | None = None
    """A query filter: only documents that match are read. It does not apply to changes. A snapshot
    keeps the filter with which it began. An unquoted date of the file is a BSON date, in UTC if it
    has no zone."""

    documents_per_second: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """The largest number of documents read per second; 0 means no limit."""

    chunk_documents: Count = 4096
    """The largest number of documents in a chunk. Changes wait while a chunk is read, so while
    changes arrive a chunk has at most 300."""

    parallel: Count = 1
    """How many chunks are read concurrently: of several collections, and of ranges of a large one.
    More are faster if the server reads from disks or is far away; one is as fast if the server is
    near and has the data in memory. `parallel` times 8 MiB must fit into half of
    `delivery.max_in_flight_bytes`. A snapshot keeps the value with which it began."""

    read_preference: (
        Literal["primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest"] | None
    ) = None
    """The members of the replica set to read documents from. Without it, the connection string
    decides. A secondary that lags delays changes."""


Snapshot = Annotated[SnapshotSettings, BeforeValidator(_mode_alone)]
