"""Sends requests to the daemon on this machine: for health checks of containers, and for people."""

import http.client

from tailrace.observe.access import CHANGE_HEADER

SECONDS = 5.0
"""How long an answer may take: if its event loop hangs for longer, the daemon is unhealthy."""

NOBODY = 0
"""In place of a status: nothing listens, so nothing was done."""
NO_ANSWER = -1
"""In place of a status: the answer did not come, so it is not known what was done."""

_HERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - replaced, not bound


def page_of(host: str, port: int) -> str:
    """The address of the status page on this machine."""
    where = _HERE.get(host, host)
    return f"http://{f'[{where}]' if ':' in where else where}:{port}/"


def ask(
    host: str,
    port: int,
    path: str,
    *,
    token: str = "",
    seconds: float = SECONDS,
) -> tuple[bool, str]:
    """Whether ``path`` answers with status 200, and the answer, or why there is none.

    Without the ``token`` it may have no reasons.
    """
    status, answer = request(host, port, path, token=token, seconds=seconds)
    return status == 200, answer


def request(
    host: str,
    port: int,
    path: str,
    *,
    method: str = "GET",
    token: str = "",
    by: str = "1",
    body: str | None = None,
    seconds: float = SECONDS,
) -> tuple[int, str]:
    """The status (or one of the above), and the answer, or why there is none.

    A change needs the token or, if none is configured, the header that foreign pages cannot send;
    its value is ``by``: who asks.
    """
    if port == 0:
        return NOBODY, "http.port is 0, so only the daemon's log knows its port: set one"
    where = _HERE.get(host, host)
    connection = http.client.HTTPConnection(where, port, timeout=seconds)
    try:
        headers = {CHANGE_HEADER.decode(): by} if method == "POST" else {}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        connection.request(method, path, body, headers)
        reply = connection.getresponse()
        return reply.status, reply.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        code = NOBODY if isinstance(error, ConnectionRefusedError) else NO_ANSWER
        return code, f"no answer from {where}:{port}: {reason}"
    finally:
        connection.close()
