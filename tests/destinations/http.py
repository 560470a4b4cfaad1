"""An HTTP endpoint as a destination: the receiver in a process of its own."""

import json
import secrets
import socket
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bson import json_util

from tests.destinations.destination import Make, Sent, last_states
from tests.destinations.server_process import ServerProcess


class Receiver(ServerProcess):
    def command(self) -> Sequence[str | Path]:
        program = (sys.executable, "-m", "tests.destinations.http_receiver")
        return [*program, str(self.port), self.directory]

    def answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


class Endpoint:
    """A path of the receiver: one request per event, or with ``log`` one per batch."""

    once = False
    refused: Mapping[str, Any] | None = {"refused": True}

    def __init__(self, receiver: Receiver, name: str, *, log: bool) -> None:
        self.name = name
        self._receiver = receiver
        self._accepted = receiver.directory / f"{name}.secret"
        self._used = receiver.directory / f"{name}.handler.secret"
        self._file = receiver.directory / f"{name}.jsonl"
        self.renew()
        self.handler: Mapping[str, Any] = {
            "type": "http",
            "url": f"http://127.0.0.1:{receiver.port}/{name}",
            "secret": {"file": str(self._used)},
            "envelope": "cloudevents",
            "batch_size": 20 if log else 1,
            "timeout_seconds": 2,
        }
        self.start, self.stop, self.pause = receiver.start, receiver.stop, receiver.pause

    def expire(self) -> None:
        self._accepted.write_text(_new_secret())

    def renew(self) -> None:
        self.expire()
        self._used.write_text(self._accepted.read_text())

    def sent(self) -> Sequence[Sent]:
        return list(map(_sent, self._events()))

    def documents(self, database: str, collection: str) -> Mapping[str, Mapping[str, Any]]:
        ns = {"db": database, "coll": collection}
        return last_states(
            _sent(event) for event in self._events() if event["data"].get("ns") == ns
        )

    def _events(self) -> Iterator[Mapping[str, Any]]:
        if self._file.exists():
            for line in self._file.read_text().splitlines():
                with suppress(ValueError):  # the receiver is writing it, or was killed then
                    event = json.loads(line)
                    yield {**event, "data": json_util.loads(json.dumps(event["data"]))}


def _sent(event: Mapping[str, Any]) -> Sent:
    data = event["data"]
    return Sent(event.get("subject"), data["operationType"], data.get("fullDocument"), event["id"])


def _new_secret() -> str:
    return f"whsec_{b64encode(secrets.token_bytes(32)).decode()}"


@contextmanager
def serve() -> Iterator[Make]:
    with tempfile.TemporaryDirectory(prefix="tailrace-http-") as directory:
        receiver = Receiver(Path(directory))
        receiver.start()
        try:
            yield lambda name, *, log=False: Endpoint(receiver, name, log=log)
        finally:
            receiver.stop()
