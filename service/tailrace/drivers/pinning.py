"""Keeps a cursor on its server, using only the drivers' public API.

The client is created with ``server_selector=select``. A command of a cursor has a :class:`Pin` in a
context variable, which both drivers propagate (Motor into its threads). The cursor's first command
chooses the server, and its later commands go only there. Other commands have no pin.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from pymongo.errors import AutoReconnect
from pymongo.server_description import ServerDescription
from pymongo.server_selectors import Selection
from pymongo.topology_description import TopologyDescription

from tailrace.errors import ServerUnsuitable

Address = tuple[str, int | None]

# The default of localThresholdMS: a server may be this much slower than the nearest one.
_LOCAL_THRESHOLD_SECONDS = 0.015

ReadPreference = Callable[[Selection], Selection]
"""A read preference of PyMongo: selects suitable servers from those that the monitors know."""


@dataclass(slots=True)
class Pin:
    """The server of one cursor. After it is ``chosen``, no other server is selected.

    ``patient``: wait for that server, within the driver's selection timeout.
    """

    address: Address | None = None
    wire_version: int = 0
    chosen: bool = False
    patient: bool = False


_current: ContextVar[Pin | None] = ContextVar("tailrace_server_pin", default=None)


@contextmanager
def pinned(pin: Pin) -> Iterator[None]:
    """Server selections inside the block are for the cursor of ``pin``."""
    token = _current.set(pin)
    try:
        yield
    finally:
        _current.reset(token)


def select(servers: Sequence[ServerDescription]) -> Sequence[ServerDescription]:
    """The client's ``server_selector``: chooses from the servers that suit the read preference.

    If the pinned server is not among them, it is gone or unknown: this raises at once, unless the
    pin is ``patient``.
    """
    pin = _current.get()
    if pin is None or not servers:
        return servers
    if not pin.chosen:
        nearest = min(server.round_trip_time or 0.0 for server in servers)
        limit = nearest + _LOCAL_THRESHOLD_SECONDS
        server = random.choice([s for s in servers if (s.round_trip_time or 0.0) <= limit])
        pin.address, pin.wire_version = server.address, server.max_wire_version
        return [server]
    known = [server for server in servers if server.address == pin.address]
    if not known and not pin.patient:
        raise AutoReconnect(f"the cursor's server {pin.address} cannot be reached")
    return known


def unsuitable(
    topology: TopologyDescription, pin: Pin, mode: ReadPreference
) -> ServerUnsuitable | None:
    """The error for a cursor whose server no longer suits ``mode`` while other servers do.

    Such a server, demoted by an election, still serves its cursors. Round-trip times do not count.
    """
    own = topology.server_descriptions().get(pin.address) if pin.address else None
    if own is None or not own.is_server_type_known:
        return None
    suitable = mode(Selection.from_topology_description(topology)).server_descriptions
    if not suitable or any(server.address == pin.address for server in suitable):
        return None
    host, port = own.address
    return ServerUnsuitable(
        f"{host}:{port} is {own.server_type_name} now, which the read preference {mode} does not "
        "want: the stream continues at another member"
    )
