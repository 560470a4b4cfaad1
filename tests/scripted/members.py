"""A member: its listening socket and its connections. What to answer is decided elsewhere."""

import asyncio
import contextlib
import dataclasses
import socket
from collections.abc import AsyncGenerator, Callable, Iterator

from .errors import ConnectionCutError
from .listener import Listener
from .wire import Answer, Message, frame, read_message

Answers = Callable[[int, int, Message], AsyncGenerator[Answer, None]]
"""Member, connection and request in; answers out, more than one for a streaming hello."""


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
        """Takes connections and bytes, but answers nothing."""
        self._reachable.clear()

    def heal(self) -> None:
        """Answers again, also what came in the meantime."""
        self._reachable.set()

    async def _talk(self, sock: socket.socket) -> None:
        """Reads and answers until the peer hangs up, or a script cuts the connection."""
        connection = next(self._ids)
        reader, writer = await asyncio.open_connection(sock=sock)
        incoming = asyncio.ensure_future(read_message(reader))
        answering: asyncio.Future[None] | None = None
        try:
            while (message := await incoming) is not None:
                # Reading goes on during an answer, so that a peer that hangs up ends it.
                incoming = asyncio.ensure_future(read_message(reader))
                answering = asyncio.ensure_future(self._answer(connection, message, writer))
                await asyncio.wait({answering, incoming}, return_when=asyncio.FIRST_COMPLETED)
                if not answering.done() and incoming.result() is None:
                    break
                await answering
        except (ConnectionCutError, ConnectionError):
            pass  # scripted, or the peer's doing: either way the connection is over
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
                # Each further reply answers the reply before it.
                request = dataclasses.replace(message, request_id=reply_id)
