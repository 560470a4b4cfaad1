"""PyMongo's exceptions (Motor's are the same) to ours, in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pymongo.errors import OperationFailure, PyMongoError

from service.errors import CommandFailed, ConnectionFailed


@contextmanager
def mapped(wire_version: Callable[[], int] = lambda: 0) -> Iterator[None]:
    """Raises :class:`CommandFailed` for the server's own errors, else :class:`ConnectionFailed`.

    ``wire_version`` is asked when an error needs it: the connection's, or 0 if unknown.
    """
    try:
        yield
    except OperationFailure as error:
        details = error.details or {}
        labels = frozenset(map(str, details.get("errorLabels", ())))
        raise CommandFailed(
            str(details.get("errmsg") or error),
            code=error.code or 0,
            code_name=str(details.get("codeName", "")),
            labels=labels,
            wire_version=wire_version(),
        ) from error
    except PyMongoError as error:
        raise ConnectionFailed(f"{type(error).__name__}: {error}") from error
