"""From the settings of a scope to the options and start of its stream."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime

from bson.timestamp import Timestamp

from tailrace.config import ScopeSettings
from tailrace.model import ResumeToken, StartPoint
from tailrace.stream.aggregate import ChangeStreamOptions


def start_point(scope: ScopeSettings) -> StartPoint:
    """Where a scope starts without a checkpoint; the server refuses contradictions."""
    at = scope.start_at
    return StartPoint(
        resume_after=ResumeToken.of(scope.resume_after) if scope.resume_after else None,
        start_after=ResumeToken.of(scope.start_after) if scope.start_after else None,
        at_operation_time=Timestamp(int(at.timestamp()), 0) if isinstance(at, datetime) else None,
    )


def stream_options(scope: ScopeSettings) -> ChangeStreamOptions:
    """A scope's options, which have the same names in the configuration."""
    options = {each.name: getattr(scope, each.name) for each in fields(ChangeStreamOptions)}
    options["pipeline"] = tuple(scope.pipeline)
    options["show_expanded_events"] = scope.show_expanded_events or None
    return ChangeStreamOptions(**options)
