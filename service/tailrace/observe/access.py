"""Decides who may read, and who may change something.

On loopback the danger is a browser: any web page that a user visits can send requests to 127.0.0.1.
So the host name must be this machine's (against DNS rebinding), and a change needs a header that a
foreign page cannot set without a preflight request. On other addresses a change needs the token.
"""

import base64
import binascii
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from tailrace.masking import keep_secret
from tailrace.observe.exchange import Request

_LONGEST_NAME = 100
_LONGEST_TOKEN = 1024
_WITH = "the token: http.token or, without it, the one in the file that the service's log names"

CHANGE_HEADER = b"tailrace-change"
"""With any value, which the log shows: the command line says there who runs it.

Scripts of foreign pages cannot send it (https://fetch.spec.whatwg.org/#http-cors-protocol).
"""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is refused, in one line; ``challenge``: the credentials that are required."""

    status: int
    message: str
    challenge: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """What the configuration allows. ``loopback``: only this machine can reach the socket.

    A token that has replaced this one in its ``token_file`` is accepted, too: who has rotated it
    there asks for the reload with it.
    """

    loopback: bool
    token: str = ""
    token_file: str = ""
    protect_reads: bool = False

    @property
    def needs(self) -> str:
        """What a change needs, for people."""
        if self.token:
            return (
                f"the token in {Path(self.token_file).absolute()}"
                if self.token_file
                else "http.token"
            )
        return "nothing on this machine" if self.loopback else "http.token, which is not configured"

    @property
    def changes(self) -> str:
        if self.token:
            return "token"
        return "header" if self.loopback else "disabled"

    def stranger(self, headers: Mapping[bytes, bytes]) -> Refusal | None:
        """On loopback, refuses a request for a host name other than this machine's."""
        asked = headers.get(b"host")
        if not self.loopback or asked is None or is_here(asked.decode("latin-1")):
            return None
        return Refusal(403, "this service answers to localhost only: ask for 127.0.0.1")

    def reader(self, headers: Mapping[bytes, bytes], *, private: bool = False) -> Refusal | None:
        """Refuses a read without the token. A browser may send the token as a password.

        What is ``private`` (it quotes documents) nobody may read without the token, where there is
        one; without one, only this machine may.
        """
        if private and not self.token and not self.loopback:
            return Refusal(403, "is refused beyond loopback unless http.token is configured")
        needs = self.protect_reads or (private and self.token)
        if not needs or self._gave_token(headers, b"bearer", b"basic"):
            return None
        message = f"needs {_WITH}, as a bearer token or as a password"
        return Refusal(401, message, 'Basic realm="tailrace", charset="UTF-8", Bearer')

    def sees_texts(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a reader may see reasons and errors, which quote documents.

        Beyond loopback with the token only; on loopback everybody who may read.
        """
        return self.reader(headers, private=not self.loopback) is None

    def changer(self, headers: Mapping[bytes, bytes]) -> Refusal | None:
        """Refuses a change without the token or the header that it needs.

        Basic credentials do not count: a browser adds them to the requests of foreign pages.
        """
        if self.token:
            if self._gave_token(headers, b"bearer"):
                return None
            return Refusal(401, f"needs 'Authorization: Bearer' with {_WITH}", "Bearer")
        if not self.loopback:
            return Refusal(403, "is refused beyond loopback unless http.token is configured")
        if CHANGE_HEADER not in headers:
            return Refusal(403, f"needs the header '{CHANGE_HEADER.decode().title()}: 1'")
        return None

    def sender(self, request: Request) -> str:
        """Who asks, for the log: an address, and the name that the sender gave, if any."""
        given = request.headers.get(CHANGE_HEADER, b"").decode(errors="replace")[:_LONGEST_NAME]
        name = "".join(each if each.isprintable() else "?" for each in given).strip()
        return f"{name} at {request.client}" if name not in ("", "1") else request.client

    def _gave_token(self, headers: Mapping[bytes, bytes], *schemes: bytes) -> bool:
        scheme, _, credentials = headers.get(b"authorization", b"").strip().partition(b" ")
        if scheme.lower() not in schemes:
            return False
        credentials = credentials.strip()
        if scheme.lower() == b"basic":
            try:
                credentials = base64.b64decode(credentials, validate=True).partition(b":")[2]
            except binascii.Error:
                return False
        return bool(self.token) and self._is_token(credentials)

    def _is_token(self, given: bytes) -> bool:
        if hmac.compare_digest(given, self.token.encode()):
            return True
        newest = _content(self.token_file) if self.token_file else b""
        if not newest or not hmac.compare_digest(given, newest):
            return False
        keep_secret(newest.decode("latin-1"))
        return True


def _content(file: str) -> bytes:
    """What a file holds now; empty if it cannot be read."""
    try:
        with Path(file).open("rb") as opened:
            return opened.read(_LONGEST_TOKEN).strip()
    except OSError:
        return b""


def is_here(host: str) -> bool:
    """Whether a host, with or without a port, names the loopback interface."""
    name = host.partition("]")[0][1:] if host.startswith("[") else host.partition(":")[0]
    if name.lower().rstrip(".") == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
