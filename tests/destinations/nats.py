"""NATS with JetStream: a server process, and a stream of each test's own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import DeliverPolicy
from nats.js.errors import NotFoundError

from tests.daemon import until
from tests.destinations.destination import Sent
from tests.machine import free_port, suspend
from tests.scripted.loop_thread import LoopThread

MAX_PAYLOAD = 64 * 1024
CONFIGURATION = """
listen: "127.0.0.1:{port}"
max_payload: {payload}
jetstream {{ store_dir: "{directory}/js", max_file_store: 1GB }}
{more}
"""


class NatsServer:
    """A server whose address and content stay over kills. A client of its own runs in a thread."""

    def __init__(self, directory: Path, more: str = "") -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = LoopThread("nats")
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self.login: dict[str, Any] = {}
        self.configure(more)
        self.start()

    def configure(self, more: str) -> None:
        """Replaces what the configuration has besides the address; a running server loads it."""
        text = CONFIGURATION.format(
            port=self.port, payload=MAX_PAYLOAD, directory=self._directory, more=more
        )
        (self._directory / "nats.conf").write_text(text)
        if self._process is not None:
            self._process.send_signal(signal.SIGHUP)

    def start(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            return
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [Path(sys.executable).parent / "nats-server", "-c", self._directory / "nats.conf"],
                stdout=log,
                stderr=log,
            )
        until(self._answers, f"the start of NATS, see {self._directory}/log")

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        assert self._process is not None
        suspend(self._process.pid)

    def close(self) -> None:
        self.stop()
        self._thread.close()

    def ask(self, request: Any) -> Any:
        """The result of a coroutine function, which gets a client."""

        async def asked() -> Any:
            async with await nats.connect(
                self.url, allow_reconnect=False, error_cb=_ignored, **self.login
            ) as client:
                return await request(client)

        return self._thread.submit(asked()).result(30)

    def messages(self, stream: str) -> list[Msg]:
        """Every message of a stream, in order; none if it does not exist."""

        async def read(client: Client) -> list[Msg]:
            jetstream = client.jetstream()
            try:
                count = (await jetstream.stream_info(stream)).state.messages
            except NotFoundError:
                return []
            found: list[Msg] = []
            if count:
                policy = DeliverPolicy.ALL
                reader = await jetstream.subscribe(
                    ">", stream=stream, ordered_consumer=True, deliver_policy=policy
                )
                while len(found) < count:
                    found.append(await reader.next_msg(10))
                await reader.unsubscribe()
            return found

        made: list[Msg] = self.ask(read)
        return made

    def _answers(self) -> bool:
        async def answers(client: Client) -> bool:
            await client.jetstream().account_info()
            return True

        with suppress(Exception):
            return bool(self.ask(answers))
        return False


async def _ignored(error: Exception) -> None:
    """A client's errors are raised as well."""


class Nats:
    """A stream and its subjects, of one test."""

    once = False
    refused: Mapping[str, Any] | None = {"text": "x" * MAX_PAYLOAD}

    def __init__(self, server: NatsServer, name: str) -> None:
        self.server = server
        self.name = name
        self.handler: Mapping[str, Any] = {
            "type": "nats",
            "servers": [server.url],
            "subject": f"{name}.{{database}}.{{collection}}",
            "stream": name,
            "create_stream": True,
        }
        self.start, self.stop, self.pause = server.start, server.stop, server.pause

    @property
    def messages(self) -> list[Msg]:
        return self.server.messages(self.name)

    def sent(self) -> Sequence[Sent]:
        return [_sent(each) for each in self.messages]

    def documents(self, database: str, collection: str) -> Mapping[str, Mapping[str, Any]]:
        found: dict[str, Mapping[str, Any]] = {}
        for each in self.sent():
            if each.operation == "drop":
                found.clear()
            elif each.key is not None and each.document is not None:
                found[each.key] = each.document
            elif each.key is not None and each.operation == "delete":
                found.pop(each.key, None)
        return found


def _sent(message: Msg) -> Sent:
    headers = message.headers or {}
    event = json.loads(message.data) if message.data else {}
    return Sent(
        headers.get("Tailrace-Key"), headers["Tailrace-Operation"], event.get("fullDocument")
    )


@contextmanager
def serve() -> Iterator[Any]:
    """Runs the server, for the destinations of all tests."""
    with TemporaryDirectory(prefix="tailrace-nats-") as directory:
        server = NatsServer(Path(directory))
        try:
            yield lambda name, log=False: Nats(server, name)
        finally:
            server.close()
