"""PyMongo's exceptions (Motor's are the same) to ours, in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from bson.errors import BSONError
from pymongo.errors import NotPrimaryError, OperationFailure, PyMongoError

from service.errors import CommandFailed, ConnectionFailed


@contextmanager
def mapped(wire_version: Callable[[], int] = lambda: 0) -> Iterator[None]:
    """Raises :class:`CommandFailed` for the server's own errors, else :class:`ConnectionFailed`.

    ``wire_version`` is asked when an error needs it: the connection's, or 0 if unknown.
    """
    try:
        yield
    except (OperationFailure, NotPrimaryError) as error:
        # The driver files answers like 10107 under its connection errors; they are the server's.
        details = error.details if isinstance(error.details, Mapping) else {}
        labels = frozenset(map(str, details.get("errorLabels", ())))
        raise CommandFailed(
            str(details.get("errmsg") or error),
            code=int(details.get("code") or getattr(error, "code", None) or 0),
            code_name=str(details.get("codeName", "")),
            labels=labels,
            wire_version=wire_version(),
        ) from error
    except (PyMongoError, BSONError) as error:
        raise ConnectionFailed(f"{type(error).__name__}: {error}") from error
