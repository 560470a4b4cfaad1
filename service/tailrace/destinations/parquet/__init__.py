"""The type ``parquet``. pyarrow is an extra, and takes 0.2 s and 60 MB: imported when needed."""

import os
from typing import TYPE_CHECKING, Literal

from anyio import to_thread

from tailrace.destination import Handler, HandlerType, Opening, ProbeContext
from tailrace.destination.settings import Bytes, Count, DocumentHandlerSettings, Seconds, Text
from tailrace.errors import ConfigurationError, Problem, how_to_install
from tailrace.lake.storage import scheme

if TYPE_CHECKING:
    from tailrace.destinations.parquet.lake_handler import LakeWriter


class ParquetHandlerSettings(DocumentHandlerSettings):
    """Writes each event exactly once to a lake of Parquet segments. Needs the extra `lake`."""

    type: Literal["parquet"]
    """Selects this handler."""

    path: Text
    """The lake: a directory, created if missing, or `s3://bucket/prefix` (credentials, region and
    endpoint from `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`,
    `AWS_ENDPOINT_URL`)."""

    documents: Literal["bson", "canonical"] = "bson"
    """How documents are stored: `bson` as the server sent them, or `canonical` Extended JSON v2,
    which every tool can read but which costs three times as much."""

    segment_rows: Count = 50_000
    """A segment is complete after this many events."""

    segment_bytes: Bytes = 16 * 1024 * 1024
    """… or after this many bytes of events, as the server sent them. Events are encoded as they
    arrive and written one row group at a time (to an object store: one segment), so this may exceed
    `delivery.max_in_flight_bytes`. A transaction is never divided."""

    segment_seconds: Seconds = 5.0
    """… or after this many seconds, which limits how old the newest event in the lake may be. Raise
    it for fewer and larger segments."""


def _check(name: str, settings: ParquetHandlerSettings) -> None:
    if any(path.split(".")[0] == "_id" for path in settings.fields.hash):
        message = "a lake cannot hash _id: its position is the id of its last event, which holds it"
        raise ConfigurationError(Problem(f"handlers.{name}.fields.hash", message))
    PARQUET.require_installed(name, *(("obstore",) if scheme(settings.path) else ()))


def _create(opening: Opening, settings: ParquetHandlerSettings) -> "LakeWriter":
    _check(opening.name, settings)
    # Arrow's own allocator keeps 20 MB and more after a segment; the system's is as fast. Arrow
    # reads the environment when it is imported.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    from tailrace.destinations.parquet.lake_handler import LakeWriter

    return LakeWriter(opening.name, settings)


def _handler(opening: Opening, settings: ParquetHandlerSettings, target: "LakeWriter") -> Handler:
    return target.handler(opening.scope, opening.tables)


async def _probe(opening: Opening, settings: ParquetHandlerSettings, context: ProbeContext) -> str:
    _check(opening.name, settings)
    from tailrace.destinations.parquet.probe import probe_lake

    return await to_thread.run_sync(probe_lake, opening.name, settings, context)


PARQUET = HandlerType(
    ParquetHandlerSettings,
    _create,
    _handler,
    _check,
    _probe,
    needs=("pyarrow",),
    install=how_to_install("lake"),
    shared=lambda settings: True,
)
