"""What errors of catalogs mean for a pipeline. Each catalog has a library of its own, and so errors
of its own: SQLAlchemy's, requests', botocore's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)

from tailrace.errors import PipelineRefused, TablesFenced, describe
from tailrace.pipeline.location import Location

LOST_RACES = (CommitFailedException, TableAlreadyExistsError, ValidationException)
"""Another writer came first, and nothing is committed."""


@contextmanager
def catalog_errors(where: str) -> Iterator[None]:
    """Raises :class:`PipelineRefused` if a catalog does not answer, or refuses."""
    try:
        yield
    except (PipelineRefused, NoSuchTableError, NoSuchNamespaceError, TableAlreadyExistsError):
        raise
    except Exception as error:
        raise PipelineRefused(f"{where}: {reason(error)}") from error


def fenced(where: Location) -> TablesFenced:
    return TablesFenced(
        f"{where}: another pipeline writes this table; nothing of this batch was committed to it. "
        "Run one pipeline for one catalog and namespace"
    )


def unanswered(where: Location, error: Exception) -> PipelineRefused:
    return PipelineRefused(
        f"{where}: the catalog has not confirmed the commit: {reason(error)}. The next run reads "
        "whether it was committed, and goes on from there"
    )


def reason(error: BaseException) -> str:
    """The innermost cause, in one line: libraries wrap what they have got from others, but
    pyiceberg's own errors have the words of a REST catalog."""
    while type(error).__module__ != "pyiceberg.exceptions" and (
        cause := error.__cause__ or getattr(error, "orig", None)
    ):
        error = cause
    return " ".join(describe(error).split())[:400]
