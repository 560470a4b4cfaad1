"""The settings of the HTTP server."""

from typing import Literal

from pydantic import ValidationInfo, field_validator

from tailrace.config.fields import Port, Seconds, Section, Text, Token


class HttpSettings(Section):
    """Metrics, health and status."""

    host: Text = "127.0.0.1"
    """The address to listen on; `0.0.0.0` in a container. On an address other than loopback,
    everybody who can reach it may read states and numbers (see `protect`); reasons, errors,
    documents, and requests that change something need the token."""

    port: Port = 9464
    """The port. 0 takes any free one."""

    liveness_seconds: Seconds = 300.0
    """How long a streaming scope may go without an answer from the server before `/livez` fails. It
    must be longer than elections and maintenance take."""

    token: Token | None = None
    """The bearer token for requests that change something. Without it, they need none on loopback;
    on another address the service makes a token, in a file beside the store (`tailrace.token`) that
    commands on this machine read."""

    token_file: Text | None = None
    """A file that holds the token and nothing else, such as a mounted secret."""

    protect: Literal["changes", "everything"] = "changes"
    """Which requests need the token: `changes`, or `everything` except the bare status codes of
    `/livez` and `/readyz`. Prometheus and browsers can send a token."""

    @field_validator("protect")
    @classmethod
    def _needs_token(cls, protect: str, info: ValidationInfo) -> str:
        if protect == "everything" and info.data.get("token", "invalid") is None:
            raise ValueError("everything needs a token beside it: http.token or token_file")
        return protect
