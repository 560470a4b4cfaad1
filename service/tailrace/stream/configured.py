"""A configured scope in the stream's own terms."""

from __future__ import annotations

from datetime import datetime

from bson.timestamp import Timestamp

from tailrace.config import ScopeSettings
from tailrace.model import ResumeToken, StartPoint
from tailrace.stream.aggregate import ChangeStreamOptions


def start_point(scope: ScopeSettings) -> StartPoint:
    """Where a scope begins without a checkpoint; what contradicts itself is the server's to say."""
    at = scope.start_at
    return StartPoint(
        resume_after=ResumeToken.of(scope.resume_after) if scope.resume_after else None,
        start_after=ResumeToken.of(scope.start_after) if scope.start_after else None,
        at_operation_time=Timestamp(int(at.timestamp()), 0) if isinstance(at, datetime) else None,
    )


def stream_options(scope: ScopeSettings) -> ChangeStreamOptions:
    """A scope's stream options, passed through as they are configured."""
    return ChangeStreamOptions(
        pipeline=tuple(scope.pipeline),
        full_document=scope.full_document,
        full_document_before_change=scope.full_document_before_change,
        show_expanded_events=scope.show_expanded_events or None,
        batch_size=scope.batch_size,
        max_await_time_ms=scope.max_await_time_ms,
        collation=scope.collation,
        comment=scope.comment,
        read_preference=scope.read_preference,
        split_large_events=scope.split_large_events,
        match_collection_uuid_for_update_lookup=scope.match_collection_uuid_for_update_lookup,
    )
