"""One connection: requests come in, one at a time, and are answered in order."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import socket
from collections.abc import AsyncGenerator, Callable

from .errors import ConnectionCutError
from .wire import Answer, Message, frame, read_message

Answers = Callable[[int, int, Message], AsyncGenerator[Answer, None]]
"""Member, connection and request in; answers out, more than one for a streaming hello."""


class Connection:
    """Serves an accepted socket; it is over when the peer hangs up, a script cuts it, or `cut`."""

    def __init__(
        self,
        sock: socket.socket,
        member: int,
        answers: Answers,
        reachable: asyncio.Event,
        ids: itertools.count[int],
    ) -> None:
        self.id = next(ids)
        self._socket = sock
        self._member = member
        self._answers = answers
        self._reachable = reachable
        self._ids = ids
        self._writer: asyncio.StreamWriter | None = None

    async def serve(self) -> None:
        """Read and answer until it is over."""
        reader, self._writer = await asyncio.open_connection(sock=self._socket)
        incoming = asyncio.ensure_future(read_message(reader))
        answering: asyncio.Future[None] | None = None
        try:
            while (message := await incoming) is not None:
                # Reading goes on during an answer, so that a peer that hangs up ends it.
                incoming = asyncio.ensure_future(read_message(reader))
                answering = asyncio.ensure_future(self._answer(message, self._writer))
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

    def close(self) -> None:
        """Close the socket at once, whether or not serving has begun."""
        if self._writer is not None:
            self._writer.transport.abort()
        else:
            self._socket.close()

    async def _answer(self, message: Message, writer: asyncio.StreamWriter) -> None:
        await self._reachable.wait()
        request = message
        async with contextlib.aclosing(self._answers(self._member, self.id, message)) as answers:
            async for answer in answers:
                await self._reachable.wait()
                if message.wants_no_answer:
                    continue
                reply_id = next(self._ids)
                writer.write(frame(request, reply_id, answer))
                await writer.drain()
                # Each further reply answers the reply before it.
                request = dataclasses.replace(message, request_id=reply_id)
