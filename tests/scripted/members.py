"""A member: its listening socket and its connections. The server decides on the answers."""

import asyncio
import contextlib
import dataclasses
import socket
from collections.abc import AsyncGenerator, Callable, Iterator

from .errors import ConnectionCutError
from .listener import Listener
from .wire import Answer, Message, frame, read_message

Answers = Callable[[int, int, Message], AsyncGenerator[Answer, None]]
"""Takes member, connection and request; yields answers, several for a streaming hello."""


class Member(Listener):
    """Answers the requests of each connection, one at a time and in order."""

    def __init__(self, index: int, answers: Answers, ids: Iterator[int]) -> None:
        super().__init__(self._talk)
        self._index = index
        self._answers = answers
        self._ids = ids
        self._reachable = asyncio.Event()
        self._reachable.set()

    def partition(self) -> None:
        """Accepts connections and bytes, but answers nothing."""
        self._reachable.clear()

    def heal(self) -> None:
        """Answers again, including requests that arrived meanwhile."""
        self._reachable.set()

    async def _talk(self, sock: socket.socket) -> None:
        """Reads and answers until the client disconnects or a script cuts the connection."""
        connection = next(self._ids)
        reader, writer = await asyncio.open_connection(sock=sock)
        incoming = asyncio.ensure_future(read_message(reader))
        answering: asyncio.Future[None] | None = None
        try:
            while (message := await incoming) is not None:
                # It keeps reading during an answer, to notice that the client disconnected.
                incoming = asyncio.ensure_future(read_message(reader))
                answering = asyncio.ensure_future(self._answer(connection, message, writer))
                await asyncio.wait({answering, incoming}, return_when=asyncio.FIRST_COMPLETED)
                if not answering.done() and incoming.result() is None:
                    break
                await answering
        except (ConnectionCutError, ConnectionError):
            pass  # cut by a script or by the client: the connection is closed either way
        finally:
            for task in (incoming, answering):
                if task is not None:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError, Exception):
                        await task
            writer.transport.abort()

    async def _answer(
        self, connection: int, message: Message, writer: asyncio.StreamWriter
    ) -> None:
        await self._reachable.wait()
        request = message
        async with contextlib.aclosing(self._answers(self._index, connection, message)) as answers:
            async for answer in answers:
                await self._reachable.wait()
                if message.wants_no_answer:
                    continue
                reply_id = next(self._ids)
                writer.write(frame(request, reply_id, answer))
                await writer.drain()
                # Each further reply answers the previous reply.
                request = dataclasses.replace(message, request_id=reply_id)
