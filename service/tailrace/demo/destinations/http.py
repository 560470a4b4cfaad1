"""HTTP: an endpoint in a process of its own, which verifies signatures and writes to a file.

``python -m tailrace.demo.destinations.http PORT FILE``, with the secret on standard input or in
``TAILRACE_DEMO_SECRET``.
"""

import json
import os
import secrets
import sys
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from aiohttp import web
from standardwebhooks import Webhook, WebhookVerificationError

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

_SECRET = "TAILRACE_DEMO_SECRET"  # noqa: S105 - its name
_MOST_BYTES = 64 * 1024 * 1024


@asynccontextmanager
async def opened(layout: Layout, database: str) -> AsyncIterator[Target]:
    """Runs the endpoint on loopback during the block."""
    port, file = free_port(), layout.destination / "received.jsonl"
    secret = f"whsec_{b64encode(secrets.token_bytes(32)).decode()}"
    command = (sys.executable, "-m", __name__, str(port), file)

    async def differences(source: Source) -> list[str]:
        return message_differences(file.read_bytes().splitlines(), source)

    environment = {**os.environ, _SECRET: secret}
    log = layout.log("destination")
    async with child_process(command, log=log, environment=environment) as child:
        await until_answers(child, "the endpoint", partial(accepts, port))
        url = f"http://127.0.0.1:{port}/changes"
        handler = {"type": "http", "url": url, "secret": secret, "batch_size": 100, **NATIVE}
        yield Target(handler, str(file), differences)


def _application(file: Path, secret: str) -> web.Application:
    async def receive(request: web.Request) -> web.Response:
        body = await request.read()
        try:
            Webhook(secret).verify(body, dict(request.headers))
        except WebhookVerificationError:
            return web.Response(status=401)
        brought = json.loads(body)
        events = brought if isinstance(brought, list) else [brought]
        with file.open("a", encoding="utf-8", newline="\n") as lines:
            lines.writelines(f"{json.dumps(each)}\n" for each in events)
        return web.Response(status=204)

    made = web.Application(client_max_size=_MOST_BYTES)
    made.router.add_post("/changes", receive)
    return made


if __name__ == "__main__":
    web.run_app(
        _application(Path(sys.argv[2]), os.environ[_SECRET]),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        print=None,
        access_log=None,
    )
