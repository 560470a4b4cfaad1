"""A proxy before the S3 server of the tests, which makes it fail as object stores do.

It forwards each request as it came, its ``Host`` included, so that signatures stay valid. It is a
process of its own: some clients hold Python's lock while they wait for an answer.
"""

import http.client
import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

_HOP = {"connection", "transfer-encoding", "keep-alive", "content-length"}
_CONTROL = "/-/rules"


@dataclass(frozen=True)
class Rules:
    """What the proxy answers instead of the server: of the requests with these methods, after the
    first ``skip`` ones, each ``every``-th gets this status and S3's code for it."""

    status: int = 0
    code: str = ""
    methods: tuple[str, ...] = ("GET", "HEAD", "PUT", "POST", "DELETE")
    skip: int = 0
    every: int = 1
    conditional: bool = True
    """False for a store that overwrites."""
    hidden: str = ""
    """A part of the names that listings do not show yet."""


class S3Proxy:
    """The process, as the tests see it; it listens on loopback."""

    def __init__(self, endpoint: str) -> None:
        command = [sys.executable, "-m", "tests.s3_proxy", endpoint]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.endpoint = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def follow(self, rules: Rules) -> int:
        """Sets rules; returns how many requests were answered by the ones before."""
        body = json.dumps(asdict(rules)).encode()
        request = urllib.request.Request(self.endpoint + _CONTROL, body, method="PUT")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.read())

    @contextmanager
    def failing(self, **rules: Any) -> Iterator[None]:
        """Answers so for a while; at the end at least one request must have been answered so."""
        self.follow(Rules(**rules))
        try:
            yield
        finally:
            answered = self.follow(Rules())
        assert answered, "no request was answered by the rule"

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60
    target = ""
    rules = Rules()
    seen = 0
    answered = 0

    def answer(self) -> None:
        body = self.body()
        shared = type(self)
        if self.path == _CONTROL:
            self.reply(200, [], str(shared.answered).encode())
            shared.rules, shared.seen, shared.answered = Rules(**json.loads(body)), 0, 0
            return
        rules = shared.rules
        if rules.status and self.command in rules.methods:
            shared.seen += 1
            if shared.seen > rules.skip and shared.seen % rules.every == 0:
                shared.answered += 1
                text = f"<Error><Code>{rules.code}</Code><Message>{rules.code}</Message></Error>"
                self.reply(rules.status, [("content-type", "application/xml")], text.encode())
                return
        upstream = http.client.HTTPConnection(self.target, timeout=60)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in _HOP:
                    upstream.putheader(name, value)
            upstream.putheader("content-length", str(len(body)))
            upstream.endheaders(body)
            got = upstream.getresponse()
            content = got.read()
            if rules.hidden and b"<ListBucketResult" in content:
                content = _without(rules.hidden.encode(), content)
            if got.status == 412 and not rules.conditional:
                self.reply(200, [("etag", '"0"')], b"")
            else:
                self.reply(got.status, got.getheaders(), content, got.getheader("content-length"))
        finally:
            upstream.close()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815 - as http.server calls it

    def body(self) -> bytes:
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def reply(
        self, status: int, headers: list[tuple[str, str]], body: bytes, size: str | None = None
    ) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _HOP:
                self.send_header(name, value)
        head = self.command == "HEAD"
        self.send_header("content-length", (size if head else None) or str(len(body)))
        self.end_headers()
        self.wfile.write(b"" if head else body)

    def log_message(self, *_: Any) -> None:
        pass


def _without(hidden: bytes, listing: bytes) -> bytes:
    _Handler.answered += 1
    objects = re.split(rb"(?=<Contents>)|(?<=</Contents>)", listing)
    shown = (each for each in objects if not (each.startswith(b"<Contents>") and hidden in each))
    return b"".join(shown)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A client that went away."""


def main() -> None:
    _Handler.target = urlsplit(sys.argv[1]).netloc
    server = _Server(("127.0.0.1", 0), _Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
