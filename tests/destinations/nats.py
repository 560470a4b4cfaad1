"""NATS with JetStream: a server process, and a stream of each test's own."""

from __future__ import annotations

import json
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

from tests.destinations.destination import Sent, last_states
from tests.destinations.server_process import ServerProcess
from tests.scripted.loop_thread import LoopThread

MAX_PAYLOAD = 64 * 1024
CONFIGURATION = """
listen: "127.0.0.1:{port}"
max_payload: {payload}
jetstream {{ store_dir: "{directory}/js", max_file_store: 1GB }}
{more}
"""


class NatsServer(ServerProcess):
    """A client of its own runs in a thread."""

    def __init__(self, directory: Path, more: str = "") -> None:
        super().__init__(directory)
        self._thread = LoopThread("nats")
        self.url = f"nats://127.0.0.1:{self.port}"
        self.login: dict[str, Any] = {}
        self.configure(more)
        self.start()

    def configure(self, more: str) -> None:
        """Replaces what the configuration has besides the address; a running server loads it."""
        text = CONFIGURATION.format(
            port=self.port, payload=MAX_PAYLOAD, directory=self.directory, more=more
        )
        (self.directory / "nats.conf").write_text(text)
        self.reload()

    def command(self) -> Sequence[str | Path]:
        return [Path(sys.executable).with_name("nats-server"), "-c", "nats.conf"]

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

    def answers(self) -> bool:
        async def asked(client: Client) -> bool:
            await client.jetstream().account_info()
            return True

        with suppress(Exception):
            return bool(self.ask(asked))
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
        return last_states(self.sent())


def _sent(message: Msg) -> Sent:
    headers = message.headers or {}
    event = json.loads(message.data) if message.data else {}
    key, operation = headers.get("Tailrace-Key"), headers["Tailrace-Operation"]
    return Sent(key, operation, event.get("fullDocument"), headers["Nats-Msg-Id"])


@contextmanager
def serve() -> Iterator[Any]:
    """Runs the server, for the destinations of all tests."""
    with TemporaryDirectory(prefix="tailrace-nats-") as directory:
        server = NatsServer(Path(directory))
        try:
            yield lambda name, log=False: Nats(server, name)
        finally:
            server.close()
