"""What tests read from a lake: segments, rows, and the events rebuilt from rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bson
import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.destinations.parquet.landing import Landing
from tailrace.event.bson import spans
from tailrace.lake.segment import FOOTER_KEY, Footer, segment_number

Elements = dict[bytes, bytes]
"""The event's top-level elements by name. Each element is raw BSON with its type and name."""

_COLUMNS = {
    "token": b"\x03_id\0",
    "document_key": b"\x03documentKey\0",
    "full_document": b"\x03fullDocument\0",
    "full_document_before_change": b"\x03fullDocumentBeforeChange\0",
    "update_description": b"\x03updateDescription\0",
}


def land(landing: Landing, events: Sequence[bytes]) -> None:
    """Lands these events as one segment."""
    landing.append(events)
    landing.commit()


def segments(lake: Path, scope: str) -> dict[int, Path]:
    """The scope's segments by number, in order."""
    found = {segment_number(path.name): path for path in (lake / scope).iterdir()}
    return {number: found[number] for number in sorted(n for n in found if n is not None)}


def landed(lake: Path, scope: str) -> list[Path]:
    """The segments that have rows, in order."""
    return [path for path in segments(lake, scope).values() if footer(path).rows]


def footer(path: Path) -> Footer:
    return Footer.from_json(pq.read_metadata(path).metadata[FOOTER_KEY], where=str(path))


def rows(lake: Path, scope: str) -> list[dict[str, Any]]:
    """All rows of the scope, in order. Also checks the footer of each segment."""
    result: list[dict[str, Any]] = []
    for number, path in segments(lake, scope).items():
        table = pq.ParquetFile(path).read()
        said = footer(path)
        assert (said.segment, said.rows) == (number, table.num_rows)
        these = plain(table)
        assert [row["segment"] for row in these] == [number] * len(these)
        assert {row["scope"] for row in these} <= {scope}
        result += these
        assert said.last_ordinal == len(result) - 1
    assert [row["ordinal"] for row in result] == list(range(len(result)))
    return result


def plain(table: pa.Table) -> list[dict[str, Any]]:
    """Rows with the wall time as an integer: BSON's range exceeds that of Python's datetime."""
    at = table.schema.get_field_index("wall_time")
    return table.set_column(at, "wall_time", table["wall_time"].cast(pa.int64())).to_pylist()


def elements(event: bytes) -> Elements:
    """The elements of an event."""
    return {name: event[begin:end] for name, (_, begin, end) in spans(event, 0).items()}


def rebuilt(row: dict[str, Any]) -> Elements:
    """The elements of the event from which a row was made. Documents must be BSON."""
    found: Elements = {}
    for column, prefix in _COLUMNS.items():
        if row[column] is not None:
            found[prefix[1:-1]] = prefix + row[column]
    if row["operation"]:
        found[b"operationType"] = b"\x02operationType\0" + _text(row["operation"])
    if row["cluster_seconds"] is not None:
        time = row["cluster_seconds"] << 32 | row["cluster_increment"]
        found[b"clusterTime"] = b"\x11clusterTime\0" + time.to_bytes(8, "little")
    if row["wall_time"] is not None:
        found[b"wallTime"] = b"\x09wallTime\0" + row["wall_time"].to_bytes(8, "little", signed=True)
    if row["database"] is not None:
        names = b"\x02db\0" + _text(row["database"])
        if row["collection"] is not None:
            names += b"\x02coll\0" + _text(row["collection"])
        found[b"ns"] = b"\x03ns\0" + (len(names) + 5).to_bytes(4, "little") + names + b"\0"
    # ``extra`` holds fields that did not fit their column; they replace the column's value.
    if row["extra"] is not None:
        found |= elements(row["extra"])
    return found


def tokens(rows: list[dict[str, Any]]) -> list[Any]:
    return [bson.decode(row["token"]) for row in rows]


def _text(value: str) -> bytes:
    raw = value.encode()
    return (len(raw) + 1).to_bytes(4, "little") + raw + b"\0"
