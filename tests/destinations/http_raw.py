"""An HTTP endpoint that answers each request with bytes of the test's own."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio
from anyio.abc import SocketStream


@dataclass(slots=True)
class RawEndpoint:
    """``closes``: the connection is closed after an answer. ``parts``: sent one by one."""

    url: str
    parts: Sequence[bytes]
    closes: bool = False
    requests: int = 0

    async def serve(self, stream: SocketStream) -> None:
        async with stream:
            received = b""
            while True:
                while b"\r\n\r\n" not in received:
                    received += await stream.receive()
                head, _, received = received.partition(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                while len(received) < length:
                    received += await stream.receive()
                received = received[length:]
                self.requests += 1
                for part in self.parts:
                    await stream.send(part)
                if self.closes:
                    return


@asynccontextmanager
async def answering(*parts: bytes, closes: bool = False) -> AsyncIterator[RawEndpoint]:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        endpoint = RawEndpoint(f"http://127.0.0.1:{port}/hook", parts, closes)

        async def serve(stream: SocketStream) -> None:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                await endpoint.serve(stream)

        tasks.start_soon(listener.serve, serve)
        yield endpoint
        tasks.cancel_scope.cancel()
