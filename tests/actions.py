"""The actions of a daemon's HTTP API, as a client on the same machine asks for them."""

import json
import urllib.error
import urllib.request
from typing import Any

from tests.daemon import Daemon


def act(
    run: Daemon, path: str, sender: str = "1", bearer: str = "", **body: Any
) -> tuple[int, Any]:
    """The status and the answer: JSON, or the text of a refusal.

    ``sender``: for the log. ``bearer``: the token of the API.
    """
    request = urllib.request.Request(
        f"http://127.0.0.1:{run.port}{path}",
        json.dumps(body).encode(),
        {"Tailrace-Change": sender} | ({"Authorization": f"Bearer {bearer}"} if bearer else {}),
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
