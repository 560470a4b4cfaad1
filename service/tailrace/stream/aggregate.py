"""The ``aggregate`` and ``getMore`` commands of a change stream.

Options are passed through as they are: the server validates them (Change Streams specification,
"Not Blocklisting Options"). Only those that are set are sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bson import json_util

from tailrace.model import Scope, StartPoint
from tailrace.stream.ports import Request

SPLIT_STAGE = "$changeStreamSplitLargeEvent"

OPEN_MS = 60_000
"""How long the server may work on an aggregate. Said always: else a default of the server's
(``defaultMaxTimeMS``, MongoDB 8.0) would say it."""


@dataclass(frozen=True, slots=True)
class ChangeStreamOptions:
    """``ChangeStreamOptions`` of the specification but for the start, which is a ``StartPoint``.

    ``max_await_time_ms`` bounds one ``getMore`` (the server answers an empty batch after it), and
    is sent there only. ``batch_size`` counts events of a reply. ``split_large_events`` appends
    the stage that cuts events above 16 MB into fragments.
    """

    pipeline: tuple[Mapping[str, Any], ...] = ()
    full_document: str | None = None
    full_document_before_change: str | None = None
    show_expanded_events: bool | None = None
    match_collection_uuid_for_update_lookup: bool | None = None
    batch_size: int | None = None
    max_await_time_ms: int | None = None
    collation: Mapping[str, Any] | None = None
    comment: Any = None
    read_preference: str | None = None
    split_large_events: bool = False

    @property
    def splits(self) -> bool:
        """Whether events may come as fragments."""
        return self.split_large_events or any(SPLIT_STAGE in stage for stage in self.pipeline)


def request(scope: Scope, options: ChangeStreamOptions, start: StartPoint) -> Request:
    """The commands that open the stream at ``start`` and read it.

    The aggregate asks for no events. Else it would search the oplog from ``start`` on until it has
    one, which no time limit must cut; a ``getMore`` does that without one, for its ``maxTimeMS`` is
    the time that it waits where it finds nothing.
    """
    get_more: dict[str, Any] = {}
    if options.batch_size is not None:
        get_more["batchSize"] = options.batch_size
    if options.max_await_time_ms is not None:
        get_more["maxTimeMS"] = options.max_await_time_ms
    aggregate: dict[str, Any] = {
        "aggregate": scope.collection if scope.collection is not None else 1,
        "pipeline": _pipeline(scope, options, start),
        "cursor": {"batchSize": 0},
        "maxTimeMS": OPEN_MS,
    }
    if options.collation is not None:
        aggregate["collation"] = options.collation
    if options.comment is not None:
        aggregate["comment"] = get_more["comment"] = options.comment
    return Request(scope.command_database, aggregate, get_more, options.read_preference)


def fingerprint(scope: Scope, options: ChangeStreamOptions) -> str:
    """Sixteen characters that change with whatever a resume token depends on.

    That is the target, the pipeline and the options of the stage (server tickets SERVER-67677,
    SERVER-107889), not how the stream is read: batch size, wait, comment, read preference.
    """
    meaning = {
        "target": str(scope),
        "kind": scope.kind,
        "pipeline": _pipeline(scope, options, StartPoint()),
        "collation": options.collation,
    }
    text = json_util.dumps(meaning, json_options=json_util.CANONICAL_JSON_OPTIONS)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _pipeline(
    scope: Scope, options: ChangeStreamOptions, start: StartPoint
) -> list[Mapping[str, Any]]:
    stage: dict[str, Any] = {}
    if scope.kind == "cluster":
        stage["allChangesForCluster"] = True
    if options.full_document is not None:
        stage["fullDocument"] = options.full_document
    if options.full_document_before_change is not None:
        stage["fullDocumentBeforeChange"] = options.full_document_before_change
    if options.show_expanded_events is not None:
        stage["showExpandedEvents"] = options.show_expanded_events
    if options.match_collection_uuid_for_update_lookup is not None:
        stage["matchCollectionUUIDForUpdateLookup"] = (
            options.match_collection_uuid_for_update_lookup
        )
    if start.resume_after is not None:
        stage["resumeAfter"] = start.resume_after.wire
    if start.start_after is not None:
        stage["startAfter"] = start.start_after.wire
    if start.at_operation_time is not None:
        stage["startAtOperationTime"] = start.at_operation_time
    pipeline: list[Mapping[str, Any]] = [{"$changeStream": stage}, *options.pipeline]
    if options.split_large_events:
        pipeline.append({SPLIT_STAGE: {}})
    return pipeline
