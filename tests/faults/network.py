"""The network between the service and a replica set: a proxy in front of each member.

It cuts connections, refuses them, delays replies, or leaves connections half-open: their sockets
stay open, but nothing is forwarded in either direction.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from functools import partial
from typing import Literal, NamedTuple, Self

from tests.mongod import ReplicaSet
from tests.orders import QUICK
from tests.scripted.listener import HOST, Listener
from tests.scripted.loop_thread import LoopThread

_GET_MORE = b"\x12getMore\0"
_STORE = (b"\0checkpoints\0", b"\0leases\0")
"""Marks a command of the store: the text of a BSON field."""
Which = Literal["all", "present", "reads", "store"]


class Read(NamedTuple):
    """A getMore that passed: its time (``monotonic``), its member and its cursor."""

    at: float
    member: int
    cursor: int


class Network:
    """A client that uses :attr:`uri` reaches every member through its proxy; a context manager.

    In the members' replies, the proxies replace the members' addresses with their own, so that a
    driver that discovers the set stays with the proxies.
    """

    read: Read | None = None
    """The last getMore that passed."""

    def __init__(self, server: ReplicaSet) -> None:
        self._ports = server.ports
        self._delay_seconds = 0.0
        self._holds = self._holds_store = self._refuses = False
        self._lost: list[tuple[bytes, ...]] = []
        self._links: set[_Link] = set()

    def __enter__(self) -> Self:
        self._thread = LoopThread("network")
        self._listeners = [Listener(partial(self._serve, n)) for n in range(len(self._ports))]
        hosts = [f"{HOST}:{listener.port}" for listener in self._listeners]
        # All ports have the same length, so that replacing them keeps the length of messages.
        self._names = [
            (f"{HOST}:{port}".encode(), host.encode())
            for port, host in zip(self._ports, hosts, strict=True)
        ]
        self.uri = f"mongodb://{','.join(hosts)}/?replicaSet=rs0{QUICK}"
        for listener in self._listeners:
            self._thread.call(listener.start)
        return self

    def __exit__(self, *_: object) -> None:
        for listener in self._listeners:
            self._thread.submit(listener.stop()).result()
        self._thread.close()

    def cut(self) -> None:
        """Closes every connection."""
        for listener in self._listeners:
            self._thread.submit(listener.cut_connections()).result()

    def delay(self, seconds: float) -> None:
        """Delays every reply by this time."""
        self._delay_seconds = seconds

    def hold(self, which: Which = "all") -> None:
        """Makes connections half-open until healed.

        ``all``: every connection. ``present``: only existing ones, as if a firewall had lost its
        table. ``reads``: existing ones on which a stream reads. ``store``: from now on, each
        connection with a command of the store.
        """

        def hold() -> None:
            for link in self._links:
                if which != "store" and (which != "reads" or link.reads):
                    link.flows.clear()
            self._holds, self._holds_store = which == "all", which == "store"

        self._thread.call(hold)

    def refuse(self) -> None:
        """Closes every connection that is not held, and accepts none until healed."""

        def refuse() -> None:
            self._refuses = True
            for link in self._links:
                if link.flows.is_set():
                    link.task.cancel()

        self._thread.call(refuse)

    def lose_answer(self, command: str, collection: str, *fields: str) -> None:
        """Closes the connection of the next such command after the server has executed it.

        ``fields`` are names of fields or operators that the command must contain as well.
        """
        parts = f"\2{command}\0", f"\0{collection}\0", *(f"{field}\0" for field in fields)
        self._thread.call(lambda: self._lost.append(tuple(part.encode() for part in parts)))

    @property
    def lost(self) -> bool:
        """True once every answer that was to be lost is lost."""
        return not self._lost

    def heal(self) -> None:
        """Forwards again, starting with the data that arrived meanwhile."""

        def heal() -> None:
            self._holds = self._holds_store = self._refuses = False
            for link in self._links:
                link.flows.set()

        self._thread.call(heal)

    async def _serve(self, member: int, client: socket.socket) -> None:
        if self._refuses:
            return
        link = _Link()
        if not self._holds:
            link.flows.set()
        self._links.add(link)
        with socket.socket() as server:
            server.setblocking(False)
            try:
                loop = asyncio.get_running_loop()
                await loop.sock_connect(server, (HOST, self._ports[member]))
                async with asyncio.TaskGroup() as directions:
                    directions.create_task(self._requests(link, member, client, server))
                    directions.create_task(self._replies(link, server, client))
            except* OSError:
                pass  # one side has closed its connection, or the server is down
            finally:
                self._links.discard(link)

    async def _requests(
        self, link: _Link, member: int, client: socket.socket, server: socket.socket
    ) -> None:
        while True:
            data = await _received(client)
            at = data.find(_GET_MORE) + len(_GET_MORE)
            if at >= len(_GET_MORE) and len(data) >= at + 8:
                link.reads = True
                (cursor,) = struct.unpack_from("<q", data, at)
                self.read = Read(time.monotonic(), member, cursor)
            if self._holds_store and any(name in data for name in _STORE):
                link.flows.clear()
            for parts in self._lost:
                if all(part in data for part in parts):
                    self._lost.remove(parts)
                    link.loses = True
                    break
            await self._forward(link, data, server)

    async def _replies(self, link: _Link, server: socket.socket, client: socket.socket) -> None:
        while True:
            data = await _received(server)
            if link.loses:
                raise ConnectionResetError
            for name, other in self._names:
                data = data.replace(name, other)
            await asyncio.sleep(self._delay_seconds)
            await self._forward(link, data, client)

    async def _forward(self, link: _Link, data: bytes, to: socket.socket) -> None:
        await link.flows.wait()
        await asyncio.get_running_loop().sock_sendall(to, data)


class _Link:
    """A client's connection, and the matching connection to the server."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.flows = asyncio.Event()
        self.reads = False
        self.loses = False


async def _received(sock: socket.socket) -> bytes:
    data = await asyncio.get_running_loop().sock_recv(sock, 65536)
    if not data:
        raise ConnectionResetError
    return data
