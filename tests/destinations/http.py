"""An HTTP endpoint as a destination: the receiver in a process of its own."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bson import json_util

from tests.checkout import IMPORTS
from tests.daemon import until
from tests.destinations.destination import Make, Sent
from tests.machine import free_port


class Receiver:
    """The process, which keeps its port."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            return
        program = (sys.executable, "-m", "tests.destinations.http_receiver")
        command = (*program, str(self.port), str(self.directory))
        self._process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": IMPORTS})
        until(self._listens, "the receiver")

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def _listens(self) -> bool:
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
        return [
            Sent(
                event.get("subject"),
                event["data"]["operationType"],
                event["data"].get("fullDocument"),
            )
            for event in self._events()
        ]

    def documents(self, database: str, collection: str) -> Mapping[str, Mapping[str, Any]]:
        found: dict[str, Mapping[str, Any]] = {}
        for event in self._events():
            data = event["data"]
            if data.get("ns") != {"db": database, "coll": collection}:
                continue
            if data["operationType"] == "drop":
                found.clear()
            elif data["operationType"] == "delete":
                found.pop(event["subject"], None)
            elif data.get("fullDocument") is not None:
                found[event["subject"]] = data["fullDocument"]
        return found

    def _events(self) -> Iterator[Mapping[str, Any]]:
        if self._file.exists():
            for line in self._file.read_text().splitlines():
                with suppress(ValueError):  # the receiver is writing it, or was killed then
                    event = json.loads(line)
                    yield {**event, "data": json_util.loads(json.dumps(event["data"]))}


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
