"""PyMongo's exceptions (Motor's are the same) to ours, in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType

from bson.errors import BSONError
from pymongo.errors import NotPrimaryError, OperationFailure, PyMongoError

from service.errors import CommandFailed, ConnectionFailed


class mapped:  # noqa: N801 - it is used as a function is
    """A block that raises :class:`CommandFailed` for the server's own errors.

    All others of the driver become :class:`ConnectionFailed`. ``wire_version`` is asked when an
    error needs it: the connection's, or 0 if unknown.
    """

    __slots__ = ("_wire_version",)

    def __init__(self, wire_version: Callable[[], int] = lambda: 0) -> None:
        self._wire_version = wire_version

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, (OperationFailure, NotPrimaryError)):
            # The driver files answers like 10107 under its connection errors; they are the
            # server's.
            details = error.details if isinstance(error.details, Mapping) else {}
            labels = frozenset(map(str, details.get("errorLabels", ())))
            raise CommandFailed(
                str(details.get("errmsg") or error),
                code=int(details.get("code") or getattr(error, "code", None) or 0),
                code_name=str(details.get("codeName", "")),
                labels=labels,
                wire_version=self._wire_version(),
            ) from error
        if isinstance(error, (PyMongoError, BSONError)):
            raise ConnectionFailed(f"{type(error).__name__}: {error}") from error
