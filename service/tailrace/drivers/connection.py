"""Commands on the client of a driver, Motor's or PyMongo's, and its errors as ours."""

from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from anyio.abc import TaskGroup
from bson.errors import BSONError
from pymongo.errors import NotPrimaryError, OperationFailure, PyMongoError
from pymongo.read_preferences import make_read_preference, read_pref_mode_from_name
from pymongo.topology_description import TopologyDescription

from tailrace.drivers.pinning import Pin
from tailrace.drivers.reads import Reads
from tailrace.errors import CommandFailed, ConnectionFailed, DriverError

COMMAND_MS = 30_000
"""How long the server may work on a command that does not set it. Without a limit, a default of the
server's (``defaultMaxTimeMS``, MongoDB 8.0) would apply."""


@contextmanager
def mapped(pin: Pin | None = None) -> Iterator[None]:
    """Raises what the server answered as :class:`CommandFailed`, else :class:`ConnectionFailed`."""
    try:
        yield
    except (PyMongoError, BSONError) as error:
        raise _ours(error, pin.wire_version if pin else 0) from error


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


class Connection:
    """A client, and what runs beside its commands: killCursors and the watch of reads."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._background: TaskGroup | None = None
        self.reads = Reads(lambda: self.topology)

    def read_preference(self, mode: str | None) -> Any:
        """The mode that a scope names, as MongoDB spells it, else that of the URI."""
        if mode is None:
            return self._client.read_preference
        return make_read_preference(read_pref_mode_from_name(mode), None)

    @property
    def read_concern(self) -> Mapping[str, Any]:
        """The URI's, as an aggregate's field, which the drivers do not add to a command."""
        document = self._client.read_concern.document
        return {"readConcern": document} if document else {}

    @property
    def topology(self) -> TopologyDescription:
        """What the client's monitors know of the servers; another object after each change."""
        return cast(TopologyDescription, self._client.topology_description)

    def database(self, name: str) -> Any:
        """The client's object for a database, which a cursor keeps: it is expensive to make."""
        return self._client[name]

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        """One command on the primary, decoded: for the store and for probes."""
        limited = {**command, "maxTimeMS": command.get("maxTimeMS", COMMAND_MS)}
        with mapped():
            reply: dict[str, Any] = await self._client[database].command(limited)
        return reply

    def in_background(self, call: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Runs ``call``, unless the driver is closing."""
        if self._background is not None:
            self._background.start_soon(call, name=name)
