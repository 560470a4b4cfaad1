"""Redis: a server process that keeps what it confirmed, and a part of its keys for each test."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from redis import Redis as Client
from redis.exceptions import RedisError

from tailrace.demo.destinations.redis import program
from tests.destinations.destination import Sent, last_states
from tests.destinations.server_process import ServerProcess
from tests.machine import free_port


class RedisServer(ServerProcess):
    """It writes its log before it answers."""

    def __init__(self, directory: Path, *options: str) -> None:
        super().__init__(directory)
        self._options = options
        if "--cluster-enabled" in options:
            self.port = free_port(beside=10_000)  # its bus
        (directory / "users").touch()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.start()

    def command(self) -> Sequence[str | Path]:
        kept = ("--appendonly", "yes", "--appendfsync", "no", "--save", "", "--aclfile", "users")
        return [program(), "--bind", "127.0.0.1", "--port", str(self.port), *kept, *self._options]

    @contextmanager
    def client(self, **options: Any) -> Iterator[Client]:
        client = Client.from_url(self.url, decode_responses=True, socket_timeout=30, **options)
        try:
            yield client
        finally:
            client.close()

    def answers(self) -> bool:
        with self.client() as client, suppress(RedisError, OSError):
            return bool(client.ping())
        return False


class Redis:
    """Keys and streams that begin with the name of a test."""

    once = False
    refused: Mapping[str, Any] | None = None

    def __init__(self, server: RedisServer, name: str, *, log: bool = False) -> None:
        self.server = server
        self.name = name
        self._log = log
        form = {"stream": f"{name}/{{database}}.{{collection}}"}
        if not log:
            form = {"key": f"{name}/{{database}}.{{collection}}:{{key}}"}
        self._user = name
        self._file = server.directory / f"{name}.url"
        self.renew()
        self.handler: Mapping[str, Any] = {
            "type": "redis",
            "url": {"file": str(self._file)},
            **form,
        }
        self.start, self.stop, self.pause = server.start, server.stop, server.pause

    def expire(self) -> None:
        """The user may not log in any more, and its connections end."""
        with self.server.client() as client:
            self._let(client, "off")
            client.execute_command("CLIENT", "KILL", "USER", self._user)

    def renew(self) -> None:
        """Another user, who may do what the first one may."""
        self._user += "_"
        with self.server.client() as client:
            self._let(client, "on", ">password", "~*", "+@all")
        login = f"//{self._user}:password@"
        self._file.write_text(self.server.url.replace("//", login))

    def _let(self, client: Client, *rights: str) -> None:
        client.execute_command("ACL", "SETUSER", self._user, *rights)
        client.execute_command("ACL", "SAVE")  # for the next start

    @property
    def keys(self) -> list[str]:
        """All keys of the test, in their order."""
        with self.server.client() as client:
            return sorted(client.scan_iter(f"{self.name}/*", count=1000))

    def entries(self, stream: str) -> list[dict[str, str]]:
        """The entries of a stream, in their order."""
        with self.server.client() as client:
            found: Any = client.xrange(f"{self.name}/{stream}")
        return [fields for _, fields in found]

    def sent(self) -> Sequence[Sent] | None:
        if not self._log:
            return None
        streams = [key.removeprefix(f"{self.name}/") for key in self.keys]
        return [_sent(each) for stream in streams for each in self.entries(stream)]

    def documents(self, database: str, collection: str) -> Mapping[str, Mapping[str, Any]]:
        if not self._log:
            prefix = f"{self.name}/{database}.{collection}:"
            keys = [key for key in self.keys if key.startswith(prefix)]
            with self.server.client() as client:
                values: Any = client.mget(keys) if keys else []
            return {
                key.removeprefix(prefix): json.loads(value)
                for key, value in zip(keys, values, strict=True)
                if value is not None
            }
        return last_states(map(_sent, self.entries(f"{database}.{collection}")))


def _sent(entry: Mapping[str, str]) -> Sent:
    event = json.loads(entry["value"])
    return Sent(entry.get("key"), entry["operation"], event.get("fullDocument"), entry["id"])


@contextmanager
def serve() -> Iterator[Any]:
    """Runs the server, for the destinations of all tests."""
    with TemporaryDirectory(prefix="tailrace-redis-") as directory:
        server = RedisServer(Path(directory))
        try:
            yield lambda name, log=False: Redis(server, name, log=log)
        finally:
            server.stop()
