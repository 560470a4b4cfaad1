"""Keeps a cursor with its server through public API alone.

The client is built with ``server_selector=select``. A selection that stands for a cursor carries
a :class:`Pin` in a context variable, which both drivers take along (Motor into its threads):
``open`` lets the selector choose a server and notes it, and everything after goes there only.
Selections without a pin (checkpoints, probes) are not touched.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from pymongo.errors import AutoReconnect
from pymongo.server_description import ServerDescription
from pymongo.server_selectors import Selection
from pymongo.topology_description import TopologyDescription

from tailrace.errors import ServerUnsuitable

Address = tuple[str, int | None]

# The driver's own default of localThresholdMS: servers this much slower than the nearest suit too.
_LOCAL_THRESHOLD_SECONDS = 0.015


class ReadPreference(Protocol):
    """A read preference of PyMongo's: it selects, of what the monitors know, what suits it."""

    def __call__(self, selection: Selection) -> Selection: ...


@dataclass(slots=True)
class Pin:
    """Where one cursor lives. ``chosen`` turns a selection into "this server or none".

    ``patient`` waits for that server, within the driver's selection timeout.
    """

    address: Address | None = None
    wire_version: int = 0
    chosen: bool = False
    patient: bool = False


_current: ContextVar[Pin | None] = ContextVar("tailrace_server_pin", default=None)


class Pinned:
    """Selections inside the block belong to the cursor of ``pin``."""

    __slots__ = ("_pin", "_token")

    def __init__(self, pin: Pin) -> None:
        self._pin = pin

    def __enter__(self) -> None:
        self._token = _current.set(self._pin)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


def select(servers: Sequence[ServerDescription]) -> Sequence[ServerDescription]:
    """The client's ``server_selector``: gets what suits the read preference, returns what may do.

    A pinned server that is not among them is gone or unknown: that is an error at once, as it is
    where drivers select by address, and not a wait for the selection's timeout.
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
    owner = [server for server in servers if server.address == pin.address]
    if not owner and not pin.patient:
        raise AutoReconnect(f"the cursor's server {pin.address} cannot be reached")
    return owner


def unsuitable(
    topology: TopologyDescription, pin: Pin, mode: ReadPreference
) -> ServerUnsuitable | None:
    """The error for a cursor at ``pin`` whose server does not suit ``mode``, while others do.

    A member that an election demoted goes on serving its cursors. While no other member suits, or
    the monitors know nothing of its own, it is as good as any. Distances do not count: a cursor
    does not move because its server has become a little slower.
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
        "want: the stream goes on at another member"
    )
