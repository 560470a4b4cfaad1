"""Asks a daemon on this machine how it is: for a container's health check, and for people."""

import http.client

SECONDS = 5.0
"""How long an answer may take: a daemon whose event loop hangs for longer is not well."""

_HERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - replaced, not bound


def ask(host: str, port: int, path: str, *, seconds: float = SECONDS) -> tuple[bool, str]:
    """Whether ``path`` answers 200, and the answer, or what became of the question."""
    if port == 0:
        return False, "http.port is 0: only the daemon's log knows which port that became"
    where = _HERE.get(host, host)
    connection = http.client.HTTPConnection(where, port, timeout=seconds)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status == 200, reply.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return False, f"no answer from {where}:{port}: {reason}"
    finally:
        connection.close()
