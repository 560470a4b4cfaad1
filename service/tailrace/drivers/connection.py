"""Runs commands on a Motor or PyMongo client, and maps its errors to ours."""

import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import structlog
from anyio.abc import TaskGroup
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError
from pymongo.errors import ConfigurationError as InvalidSettings
from pymongo.errors import NotPrimaryError, OperationFailure, PyMongoError
from pymongo.read_preferences import make_read_preference, read_pref_mode_from_name
from pymongo.topology_description import TopologyDescription

from tailrace.drivers.pinning import Pin
from tailrace.drivers.reads import Reads
from tailrace.errors import (
    CommandFailed,
    ConfigurationError,
    ConnectionFailed,
    Problem,
    TailraceError,
)
from tailrace.stream.resumable import UNAUTHORIZED

COMMAND_MS = 30_000
"""How long the server may work on a command that sets no limit of its own. Otherwise the server's
default (``defaultMaxTimeMS``, MongoDB 8.0) would apply."""

# A reply may quote users' data: ids, filters, the pipelines of views, the rules of a validation.
_DECODED: CodecOptions[dict[str, Any]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO, unicode_decode_error_handler="replace"
)
"""Dates beyond Python's years become ``DatetimeMS``, so that no reply fails."""


_COMMAND = re.compile(r"( to execute command )\{ (\w+): .*", re.DOTALL)
"""A missing privilege, as mongod words it: with the whole command, its session and cluster time."""


@contextmanager
def mapped(pin: Pin | None = None) -> Iterator[None]:
    """Raises error replies as :class:`CommandFailed`, other errors as :class:`ConnectionFailed`.

    A URI that needs a missing package is a :class:`ConfigurationError`.
    """
    try:
        yield
    except (PyMongoError, BSONError) as error:
        raise _ours(error, pin.wire_version if pin else 0) from error


def _ours(error: Exception, wire_version: int) -> TailraceError:
    if isinstance(error, InvalidSettings) and _lacks_package(error):
        return ConfigurationError(Problem("mongodb.uri", f"{error}, or correct the URI"))
    if not isinstance(error, (OperationFailure, NotPrimaryError)):
        return ConnectionFailed(f"{type(error).__name__}: {error}")
    # NotPrimaryError is a connection error for the driver, but the server has answered.
    details = error.details if isinstance(error.details, Mapping) else {}
    message = str(details.get("errmsg") or error)
    return CommandFailed(
        _COMMAND.sub(r"\1\2", message),
        code=int(details.get("code") or getattr(error, "code", None) or 0),
        code_name=str(details.get("codeName", "")),
        labels=frozenset(map(str, details.get("errorLabels", ()))),
        wire_version=wire_version,
    )


def _lacks_package(error: InvalidSettings) -> bool:
    """Whether the URI asks for what a package provides that is not installed, as for an
    authMechanism: drivers look for it only when they connect."""
    return isinstance(error.__cause__, ImportError) or "must be installed" in str(error)


def _logged_out(error: CommandFailed) -> bool:
    """Whether the server has forgotten the login of a connection, as after ``dropUser``.

    The user may be there again. But no driver logs an open connection in again: each of them is
    refused for ever (mongod, src/mongo/db/commands.cpp; tried with 6.0.5, Motor and PyMongo).
    """
    return error.code == UNAUTHORIZED and "requires authentication" in str(error)


@dataclass(frozen=True, slots=True)
class DriverClient:
    """A driver's client, and what differs between drivers."""

    client: Any
    start_session: Callable[[], Awaitable[Any]]
    close: Callable[[], Coroutine[Any, Any, None]]


class Connection:
    """A client, with its background tasks: opening and killing cursors, the watch of reads.

    A client whose connections the server has logged out is replaced by a new one.
    """

    def __init__(self, open_client: Callable[[], DriverClient]) -> None:
        self._open_client = open_client
        self.opened = open_client()
        self._background: TaskGroup | None = None
        self.reads = Reads(lambda: self.topology)

    def read_preference(self, mode: str | None) -> Any:
        """The mode that a scope names, as MongoDB spells it; by default the URI's."""
        if mode is None:
            return self.opened.client.read_preference
        return make_read_preference(read_pref_mode_from_name(mode), None)

    @property
    def read_concern(self) -> Mapping[str, Any]:
        """The URI's read concern as a field of an aggregate; drivers do not add it to commands."""
        document = self.opened.client.read_concern.document
        return {"readConcern": document} if document else {}

    @property
    def topology(self) -> TopologyDescription:
        """What the client's monitors know about the servers; a new object after each change."""
        return cast(TopologyDescription, self.opened.client.topology_description)

    def database(self, name: str) -> Any:
        """The client's object for a database. Cursors keep it, since it is expensive to create."""
        return self.opened.client[name]

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        """Runs one command on the primary and decodes its reply: for the store and for probes."""
        limited = {**command, "maxTimeMS": command.get("maxTimeMS", COMMAND_MS)}
        with self.replacing(), mapped():
            reply: dict[str, Any] = await self.database(database).command(
                limited, codec_options=_DECODED
            )
        return reply

    @contextmanager
    def replacing(self, used: DriverClient | None = None) -> Iterator[None]:
        """Replaces the client if a command says that its connections are logged out.

        ``used``: the client of the command, if it is not the current one.
        """
        used = used or self.opened
        try:
            yield
        except CommandFailed as error:
            if _logged_out(error) and used is self.opened:
                structlog.get_logger().warning("client.replaced", reason=str(error))
                self.opened = self._open_client()
                self.in_background(used.close, "close of a client")
            raise

    def in_background(self, call: Callable[[], Coroutine[Any, Any, None]], name: str) -> bool:
        """Runs ``call`` in the background; ``False`` if the driver is closing."""
        if self._background is None:
            return False
        self._background.start_soon(call, name=name)
        return True
