"""The options of a change stream, and its ``aggregate`` and ``getMore`` commands.

Options are passed through, and the server validates them (Change Streams specification, "Not
Blocklisting Options"). Only options that are set are sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bson import json_util

from tailrace.model import ResumeToken, Scope, StartPoint
from tailrace.stream.driver_port import CursorRequest

LOOKUP = "lookup"
"""The value of ``full_document`` with which :mod:`tailrace.stream.lookup` adds the documents."""

SPLIT_STAGE = "$changeStreamSplitLargeEvent"

OPEN_MS = 60_000
"""How long the server may work on an aggregate. Without this limit, the server's default
(``defaultMaxTimeMS``, MongoDB 8.0) would apply."""

_STAGE_OPTIONS = {
    "fullDocument": "full_document",
    "fullDocumentBeforeChange": "full_document_before_change",
    "showExpandedEvents": "show_expanded_events",
    "matchCollectionUUIDForUpdateLookup": "match_collection_uuid_for_update_lookup",
}


@dataclass(frozen=True, slots=True)
class ChangeStreamOptions:
    """``ChangeStreamOptions`` of the specification, except the start, which is a ``StartPoint``."""

    pipeline: tuple[Mapping[str, Any], ...] = ()
    full_document: str | None = None
    full_document_before_change: str | None = None
    show_expanded_events: bool | None = None
    match_collection_uuid_for_update_lookup: bool | None = None
    batch_size: int | None = None
    max_await_time_ms: int | None = None
    idle_await_ms: int | None = None
    """What replaces ``max_await_time_ms`` while no changes come; ``None``: nothing does."""
    collation: Mapping[str, Any] | None = None
    comment: Any = None
    read_preference: str | None = None
    split_large_events: bool = False

    @property
    def looks_up(self) -> bool:
        """Whether :mod:`tailrace.stream.lookup` looks up the documents of updates."""
        return self.full_document == LOOKUP

    @property
    def of_server(self) -> ChangeStreamOptions:
        """The options to send: without those that our own look-up replaces."""
        if not self.looks_up:
            return self
        return replace(self, full_document=None, match_collection_uuid_for_update_lookup=None)

    @property
    def splits(self) -> bool:
        """Whether events may come as fragments."""
        return self.split_large_events or any(SPLIT_STAGE in stage for stage in self.pipeline)


def request(scope: Scope, options: ChangeStreamOptions, start: StartPoint) -> CursorRequest:
    """The commands that open the stream at ``start`` and read it.

    The aggregate asks for no events. Otherwise it would search the oplog until it has one, and its
    time limit could cut the search. The ``maxTimeMS`` of a ``getMore`` limits only the wait for a
    change.
    """
    get_more = _given(batchSize=options.batch_size, maxTimeMS=options.max_await_time_ms)
    aggregate: dict[str, Any] = {
        "aggregate": scope.collection if scope.collection is not None else 1,
        "pipeline": _pipeline(scope, options, start),
        "cursor": {"batchSize": 0},
        "maxTimeMS": OPEN_MS,
        **_given(collation=options.collation),
    }
    if options.comment is not None:
        aggregate["comment"] = get_more["comment"] = options.comment
    return CursorRequest(scope.command_database, aggregate, get_more, options.read_preference)


def fingerprint(scope: Scope, options: ChangeStreamOptions) -> str:
    """Sixteen characters that change with anything on which a resume token depends.

    That is the target, the pipeline and the options of the stage (SERVER-67677, SERVER-107889).
    """
    meaning = {
        "target": str(scope),
        "kind": scope.kind,
        "pipeline": _pipeline(scope, options, StartPoint()),
        "collation": options.collation,
    }
    text = json_util.dumps(meaning, json_options=json_util.CANONICAL_JSON_OPTIONS)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def between(
    after: ResumeToken | None = None, through: ResumeToken | None = None
) -> Mapping[str, Any]:
    """A stage that lets only the events between two tokens pass, whose text sorts like the stream.

    The server moves it before the look-ups of images, because it needs none (mongod,
    ``DocumentSourceChangeStreamAddPostImage::getModifiedPaths``; tried with 6.0.5).
    """
    bounds = {"$gt": after, "$lte": through}
    return {
        "$match": {
            "_id._data": {
                operator: token.document["_data"]
                for operator, token in bounds.items()
                if token is not None
            }
        }
    }


def _pipeline(
    scope: Scope, options: ChangeStreamOptions, start: StartPoint
) -> list[Mapping[str, Any]]:
    options = options.of_server
    stage = _given(
        allChangesForCluster=True if scope.kind == "cluster" else None,
        **{name: getattr(options, attribute) for name, attribute in _STAGE_OPTIONS.items()},
        resumeAfter=start.resume_after and start.resume_after.wire,
        startAfter=start.start_after and start.start_after.wire,
        startAtOperationTime=start.at_operation_time,
    )
    past = () if start.past is None else (between(after=start.past),)
    pipeline: list[Mapping[str, Any]] = [{"$changeStream": stage}, *past, *options.pipeline]
    if options.split_large_events:
        pipeline.append({SPLIT_STAGE: {}})
    return pipeline


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
