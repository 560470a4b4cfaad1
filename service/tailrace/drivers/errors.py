"""PyMongo's exceptions (Motor's are the same) to ours, in one place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from bson.errors import BSONError
from pymongo.errors import NotPrimaryError, OperationFailure, PyMongoError

from tailrace.drivers.pinning import Pin
from tailrace.errors import CommandFailed, ConnectionFailed, DriverError

_NO_PIN = Pin()


@contextmanager
def mapped(pin: Pin = _NO_PIN) -> Iterator[None]:
    """Raises a driver's error as :class:`CommandFailed` if the server answered with it.

    Everything else is :class:`ConnectionFailed`.
    """
    try:
        yield
    except (PyMongoError, BSONError) as error:
        raise _ours(error, pin.wire_version) from error


def _ours(error: Exception, wire_version: int) -> DriverError:
    if not isinstance(error, (OperationFailure, NotPrimaryError)):
        return ConnectionFailed(f"{type(error).__name__}: {error}")
    # NotPrimaryError is one of the driver's connection errors, but an answer of the server.
    details = error.details if isinstance(error.details, Mapping) else {}
    return CommandFailed(
        str(details.get("errmsg") or error),
        code=int(details.get("code") or getattr(error, "code", None) or 0),
        code_name=str(details.get("codeName", "")),
        labels=frozenset(map(str, details.get("errorLabels", ()))),
        wire_version=wire_version,
    )
