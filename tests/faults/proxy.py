"""A small TCP proxy in front of a server, for faults of the network rather than of the server.

It cuts connections, refuses them, delays what passes, or is half-open: it keeps sockets open, goes
on taking bytes, and forwards nothing either way.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import Mapping
from typing import Literal, NamedTuple, Self

from tests.scripted.loop_thread import LoopThread

HOST = "127.0.0.1"
_GET_MORE = b"\x12getMore\0"
Which = Literal["all", "present", "reads"]


class Read(NamedTuple):
    """A getMore that passed: when (``monotonic``), and its cursor."""

    at: float
    cursor: int


class Proxy:
    """Forwards a port of its own to ``target`` on loopback; a context manager.

    One that ``poses`` as the member behind it replaces the member's address in what that says of
    its set, so that a driver which discovers the set stays with the proxy. Of several members each
    proxy is told the names of all (:meth:`rename`).
    """

    read: Read | None = None
    """The getMore that passed last."""

    def __init__(self, target: int, *, poses: bool = False) -> None:
        self._target = target
        self._poses = poses
        self._names: list[tuple[bytes, bytes]] = []
        self._delay_seconds = 0.0
        self._refuses = False
        self._links: set[_Link] = set()

    def __enter__(self) -> Self:
        self._thread = LoopThread("proxy")
        self._thread.submit(self._listen()).result(5)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.call(self._close)
        self._thread.close()

    @property
    def address(self) -> str:
        """Host and port, as a member's name."""
        return f"{HOST}:{self.port}"

    def rename(self, names: Mapping[str, str]) -> None:
        """Replaces addresses in what the target says, by others of the same length."""
        for name, other in names.items():
            if len(name) != len(other):
                raise ValueError(f"{other} cannot stand for {name}: another length")
        self._names = [(name.encode(), other.encode()) for name, other in names.items()]

    def cut(self) -> int:
        """Resets every connection; says how many there were."""

        def cut() -> int:
            for link in self._links:
                link.cut()
            return len(self._links)

        return self._thread.call(cut)

    def delay(self, seconds: float) -> None:
        """Holds everything that passes back for so long."""
        self._delay_seconds = seconds

    def hold(self, which: Which = "all") -> None:
        """Half-open from now on: nothing is forwarded, no socket is closed.

        ``all`` connections; those that are ``present``, while later ones are served, as where a
        firewall forgot its table; or those present on which a stream ``reads``.
        """

        def hold() -> None:
            for link in self._links:
                if which != "reads" or link.reads:
                    link.flows.clear()
            self._holds = which == "all"

        self._thread.call(hold)

    def refuse(self) -> None:
        """Cuts every connection that is not held, and takes none, until healed."""

        def refuse() -> None:
            self._refuses = True
            for link in self._links:
                if link.flows.is_set():
                    link.cut()

        self._thread.call(refuse)

    def heal(self) -> None:
        """Forwards again, first what came in meanwhile."""

        def heal() -> None:
            self._holds = self._refuses = False
            for link in self._links:
                link.flows.set()

        self._thread.call(heal)

    async def _listen(self) -> None:
        self._holds = False
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        if self._poses:
            self.rename({f"{HOST}:{self._target}": self.address})

    def _close(self) -> None:
        self._server.close()
        for link in self._links:
            link.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(reader, writer)
        if not self._holds:
            link.flows.set()
        if self._refuses:
            link.cut()
            return
        self._links.add(link)
        try:
            there_reader, there_writer = await asyncio.open_connection(HOST, self._target)
            link.writers.append(there_writer)
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(link, reader, there_writer))
                pumps.create_task(self._pump(link, there_reader, writer))
        except* OSError:
            pass  # cut, or the server is not there
        finally:
            self._links.discard(link)
            link.cut()

    async def _pump(
        self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                self._notice(link, data)
                if reader is not link.reader:
                    for name, other in self._names:
                        data = data.replace(name, other)
                if self._delay_seconds:
                    await asyncio.sleep(self._delay_seconds)
                await link.flows.wait()
                writer.write(data)
                await writer.drain()
        link.cut()  # and with it the other direction

    def _notice(self, link: _Link, data: bytes) -> None:
        at = data.find(_GET_MORE) + len(_GET_MORE)
        if at >= len(_GET_MORE) and len(data) >= at + 8:
            link.reads = True
            (cursor,) = struct.unpack_from("<q", data, at)
            self.read = Read(time.monotonic(), cursor)


class _Link:
    """One connection to the proxy, and its other half to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writers = [writer]
        self.flows = asyncio.Event()
        self.reads = False

    def cut(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        self.flows.set()
