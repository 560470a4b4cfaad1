"""The columns of a segment as Arrow types."""

from __future__ import annotations

import pyarrow as pa

from tailrace.lake.segment import COLUMNS, Documents, Kind

_REQUIRED = {"scope", "segment", "ordinal", "token", "operation"}


def schema(documents: Documents) -> pa.Schema:
    """The schema of a segment that keeps documents so."""
    kinds = {
        Kind.INT64: pa.int64(),
        Kind.STRING: pa.string(),
        Kind.BINARY: pa.binary(),
        Kind.MILLISECONDS: pa.timestamp("ms", "UTC"),
        Kind.DOCUMENT: pa.binary() if documents is Documents.BSON else pa.string(),
    }
    return pa.schema(
        pa.field(name, kinds[kind], nullable=name not in _REQUIRED)
        for name, kind in COLUMNS.items()
    )
