"""What errors of deltalake mean for a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from tailrace.errors import PipelineRefused, TablesFenced, describe
from tailrace.pipeline.location import Location


@contextmanager
def read_errors(location: Location) -> Iterator[None]:
    try:
        yield
    except TableNotFoundError:
        raise
    except (DeltaError, OSError, ValueError) as error:
        raise PipelineRefused(
            f"{location}: cannot be read as a Delta table: {describe(error)}. Restore "
            "it, or move it away and run with --rebuild"
        ) from error


@contextmanager
def commit_errors(where: Location) -> Iterator[None]:
    try:
        yield
    except (CommitFailedError, DeltaError, OSError) as error:
        # "already exists": another writer has created the table meanwhile.
        if isinstance(error, CommitFailedError) or "already exists" in str(error):
            raise TablesFenced(
                f"{where}: another pipeline writes this table; nothing of this batch was "
                "committed to it. Run one pipeline for one --tables directory"
            ) from error
        raise PipelineRefused(
            f"{where}: the commit failed: {describe(error)}. Nothing was committed"
        ) from error
