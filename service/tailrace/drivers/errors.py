"""PyMongo's exceptions (Motor's are the same) to ours, in one place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from bson.errors import BSONError
from pymongo.errors import NotPrimaryError, OperationFailure, PyMongoError

from tailrace.errors import CommandFailed, ConnectionFailed, DriverError

THEIRS = (PyMongoError, BSONError)
"""What both drivers raise."""


@contextmanager
def mapped() -> Iterator[None]:
    """Raises what :func:`ours` makes of a driver's error."""
    try:
        yield
    except THEIRS as error:
        raise ours(error) from error


def ours(error: Exception, wire_version: int = 0) -> DriverError:
    """:class:`CommandFailed` for the server's own errors, else :class:`ConnectionFailed`.

    ``wire_version`` is the connection's, or 0 if unknown.
    """
    if not isinstance(error, (OperationFailure, NotPrimaryError)):
        return ConnectionFailed(f"{type(error).__name__}: {error}")
    # The driver files answers like 10107 under its connection errors; they are the server's.
    details = error.details if isinstance(error.details, Mapping) else {}
    return CommandFailed(
        str(details.get("errmsg") or error),
        code=int(details.get("code") or getattr(error, "code", None) or 0),
        code_name=str(details.get("codeName", "")),
        labels=frozenset(map(str, details.get("errorLabels", ()))),
        wire_version=wire_version,
    )
