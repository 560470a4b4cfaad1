"""A lake as the daemon writes it, from events given as documents."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import bson
from bson import Timestamp

from tailrace.event.bson import encoded
from tailrace.event.columns import cut
from tailrace.lake.segment import LAKE_FILE, Documents, Footer, segment_name
from tailrace.lake.segment_writer import SegmentWriter
from tailrace.lake.writable_lake import open_storage
from tailrace.model import ResumeToken


class Landing:
    """Lands events of one or more scopes, one segment a call."""

    def __init__(self, path: Path | str, documents: Documents = Documents.BSON) -> None:
        self.path = path
        self.documents = documents
        self.identity = str(uuid.uuid4())
        record = json.dumps({"format": 1, "id": self.identity})
        open_storage(str(path)).put(LAKE_FILE, record.encode())
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
        """Writes the next segment of the scope; returns its path, if the lake is a directory."""
        documents = documents or self.documents
        segment, last, token, time = self.last.get(scope, (-1, -1, None, None))
        segment += 1
        numbers = ordinals or range(last + 1, last + 1 + len(events))
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
        writer = SegmentWriter(open_storage(str(self.path)).create(name), said)
        if events:
            columns = cut([_encoded(event) for event in events], documents)
            writer.write({**columns, "ordinal": numbers})
        writer.finish(replace(said, **footer))
        return Path(self.path, name)


def _encoded(event: Mapping[str, Any]) -> bytes:
    """The event's BSON. Documents in it may be bytes that PyMongo would not write."""
    return encoded(
        b"".join(
            b"\x03%b\0%b" % (name.encode(), value)
            if isinstance(value, bytes)
            else bson.encode({name: value})[4:-1]
            for name, value in event.items()
        )
    )
