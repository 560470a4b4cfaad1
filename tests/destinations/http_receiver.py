"""An endpoint that verifies signatures and writes down what it accepts; a process of its own.

    python -m tests.destinations.http_receiver PORT DIRECTORY

A request to ``/NAME`` is verified with the secret in ``DIRECTORY/NAME.secret``, and what it brings
is appended to ``DIRECTORY/NAME.jsonl`` before it is answered. Events whose document has a field
``refused`` are refused with 422, all others of the same request are not taken then.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiohttp import web
from standardwebhooks import Webhook, WebhookVerificationError


def verified(request: web.Request, body: bytes, secret: str) -> bool:
    """Whether one of the request's signatures is made with the secret."""
    try:
        Webhook(secret).verify(body, dict(request.headers))
    except WebhookVerificationError:
        return False
    return True


def _refused(event: Mapping[str, Any]) -> bool:
    return "refused" in ((event["data"].get("fullDocument")) or {})


def application(directory: Path) -> web.Application:
    async def receive(request: web.Request) -> web.Response:
        name, body = request.match_info["name"], await request.read()
        if not verified(request, body, (directory / f"{name}.secret").read_text()):
            return web.Response(status=401)
        brought = json.loads(body)
        events = brought if isinstance(brought, list) else [brought]
        if listed := [{"index": at} for at, each in enumerate(events) if _refused(each)]:
            return web.json_response({"refused": listed}, status=422)
        with (directory / f"{name}.jsonl").open("a") as file:
            file.writelines(f"\n{json.dumps(each)}" for each in events)
        return web.Response(status=204)

    made = web.Application(client_max_size=2**26)
    made.router.add_post("/{name}", receive)
    return made


if __name__ == "__main__":
    web.run_app(
        application(Path(sys.argv[2])),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        print=None,
        access_log=None,
        reuse_address=True,
    )
