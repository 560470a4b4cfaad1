"""A lake written by hand: segments exactly as the format says, from events as documents."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import bson
from bson import Timestamp

from tailrace.event.extended_json import to_json
from tailrace.lake.directory import Directory
from tailrace.lake.segment import COLUMNS, LAKE_FILE, Documents, Footer, segment_name
from tailrace.lake.segment_writer import SegmentWriter
from tailrace.model import ResumeToken

_OWN = {
    "_id", "operationType", "clusterTime", "wallTime", "ns", "documentKey", "fullDocument",
    "fullDocumentBeforeChange", "updateDescription",
}  # fmt: skip


class Landing:
    """Lands events of one or more scopes, a segment a call."""

    def __init__(self, path: Path, documents: Documents = Documents.BSON) -> None:
        self.path = path
        self.documents = documents
        self.identity = str(uuid.uuid4())
        path.mkdir(parents=True, exist_ok=True)
        (path / LAKE_FILE).write_text(json.dumps({"format": 1, "id": self.identity}))
        self.last: dict[str, tuple[int, int, ResumeToken | None, Timestamp | None]] = {}

    def land(
        self,
        events: Sequence[Mapping[str, Any]],
        scope: str = "orders",
        *,
        gap: Mapping[str, Any] | None = None,
        ordinals: Sequence[int] | None = None,
        documents: Documents | None = None,
        **footer: Any,
    ) -> Path:
        """Writes the next segment of the scope."""
        documents = documents or self.documents
        segment, last, token, time = self.last.get(scope, (-1, -1, None, None))
        segment += 1
        numbers = list(ordinals) if ordinals is not None else [
            last + 1 + at for at in range(len(events))
        ]  # fmt: skip
        rows = [
            _row(scope, segment, number, event, documents)
            for number, event in zip(numbers, events, strict=True)
        ]
        if events:
            token = ResumeToken.of(events[-1]["_id"])
            time = events[-1].get("clusterTime")
        end = max(numbers, default=last)
        self.last[scope] = (segment, end, token, time)
        said = Footer(
            lake=self.identity,
            scope=scope,
            segment=segment,
            rows=len(events),
            first_ordinal=last + 1,
            last_ordinal=end,
            token=token,
            cluster_time=time,
            cluster="c1",
            fingerprint="f1",
            epoch=1,
            documents=documents,
            gap=gap,
        )
        name = f"{scope}/{segment_name(segment)}"
        writer = SegmentWriter(Directory(self.path).create(name), said)
        if rows:
            writer.write({name: [row[name] for row in rows] for name in COLUMNS})
        writer.finish(replace(said, **footer))
        return self.path / name


def _row(
    scope: str, segment: int, ordinal: int, event: Mapping[str, Any], documents: Documents
) -> dict[str, Any]:
    def document(value: Any) -> Any:
        if value is None:
            return None
        raw = value if isinstance(value, bytes) else bson.encode(value)
        if documents is Documents.BSON:
            return raw
        return to_json(raw, canonical=documents is Documents.CANONICAL)

    extra = {k: v for k, v in event.items() if k not in _OWN or (v is None and k != "ns")}
    time = event.get("clusterTime")
    ns = event.get("ns") or {}
    return {
        "scope": scope,
        "segment": segment,
        "ordinal": ordinal,
        "cluster_seconds": time and time.time,
        "cluster_increment": time and time.inc,
        "token": bson.encode(event["_id"]),
        "wall_time": event.get("wallTime"),
        "operation": event["operationType"],
        "database": ns.get("db"),
        "collection": ns.get("coll"),
        "document_key": document(event.get("documentKey")),
        "full_document": document(event.get("fullDocument")),
        "full_document_before_change": document(event.get("fullDocumentBeforeChange")),
        "update_description": document(event.get("updateDescription")),
        "extra": document(extra) if extra else None,
    }
