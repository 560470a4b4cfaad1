"""A member: its listening socket and its connections. What to answer is decided elsewhere."""

from __future__ import annotations

import asyncio
import itertools
import socket

from tests.machine import free_port

from .connections import Answers, Connection

HOST = "127.0.0.1"


class Member:
    """Listens on loopback and serves each connection in a task of its own.

    It accepts by hand: asyncio's own server leaks a connection that comes in while it closes.
    """

    def __init__(self, index: int, answers: Answers, ids: itertools.count[int]) -> None:
        self.index = index
        self._answers = answers
        self._ids = ids
        self._tasks: set[asyncio.Task[None]] = set()
        self._reachable = asyncio.Event()
        self._reachable.set()
        # Bound from the start, so that the port is known before any member listens.
        self._socket: socket.socket | None = _bind(free_port())
        self.port: int = self._socket.getsockname()[1]

    def start(self) -> None:
        """Listen, on the same port as before."""
        sock = self._socket = self._socket or _bind(self.port)
        sock.listen(100)
        asyncio.get_running_loop().add_reader(sock, self._accept, sock)

    async def stop(self) -> None:
        """Stop listening and cut every connection."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        await self.cut_connections()

    async def cut_connections(self) -> None:
        """Close every connection without a word."""
        doomed = list(self._tasks)
        for task in doomed:
            task.cancel()
        await asyncio.gather(*doomed, return_exceptions=True)

    def partition(self) -> None:
        """Take connections and bytes, but answer nothing."""
        self._reachable.clear()

    def heal(self) -> None:
        """Answer again, also what came in the meantime."""
        self._reachable.set()

    def _accept(self, listening: socket.socket) -> None:
        try:
            sock, _ = listening.accept()
        except (BlockingIOError, ConnectionError):
            return  # the peer has already left
        sock.setblocking(False)
        connection = Connection(sock, self.index, self._answers, self._reachable, self._ids)
        name = f"scripted member {self.index} connection {connection.id}"
        task = asyncio.get_running_loop().create_task(connection.serve(), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Not inside the task: one that is cancelled before its first step runs no `finally`.
        task.add_done_callback(lambda _: connection.close())


def _bind(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setblocking(False)
    sock.bind((HOST, port))
    return sock
