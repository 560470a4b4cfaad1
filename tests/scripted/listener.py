"""A listening socket that serves each connection in a task."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from tests.machine import free_port

HOST = "127.0.0.1"


class Listener:
    """Listens on loopback. ``serve`` gets each connection's socket, which is closed afterwards.

    It calls accept itself: asyncio's server leaks a connection that arrives while it closes.
    """

    def __init__(self, serve: Callable[[socket.socket], Coroutine[Any, Any, None]]) -> None:
        self._serve = serve
        self._tasks: set[asyncio.Task[None]] = set()
        # Binds at once, so that the port is known before it listens.
        self._socket: socket.socket | None = _bind(free_port())
        self.port: int = self._socket.getsockname()[1]

    def start(self) -> None:
        """Listens, on the same port as before."""
        sock = self._socket = self._socket or _bind(self.port)
        sock.listen(100)
        asyncio.get_running_loop().add_reader(sock, self._accept, sock)

    async def stop(self) -> None:
        """Stops listening and cuts every connection."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        await self.cut_connections()

    async def cut_connections(self) -> None:
        """Closes every connection without a message."""
        doomed = list(self._tasks)
        for task in doomed:
            task.cancel()
        await asyncio.gather(*doomed, return_exceptions=True)

    def _accept(self, listening: socket.socket) -> None:
        try:
            sock, _ = listening.accept()
        except (BlockingIOError, ConnectionError):
            return  # the peer has already left
        sock.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._serve(sock))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Not inside the task: a task cancelled before its first step runs no `finally`.
        task.add_done_callback(lambda _: sock.close())


def _bind(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setblocking(False)
    sock.bind((HOST, port))
    return sock
