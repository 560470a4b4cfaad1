"""The destination ``mongodb``: a second replica set, with a user whose password is in a file."""

import json
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bson
from bson import json_util
from bson.raw_bson import RawBSONDocument

from tailrace.event.document_key import key_text
from tests.destinations.destination import Make, Sent, last_states
from tests.mongod import ReplicaSet
from tests.orders import QUICK

ROOT = ("root", "right")
RULES = {
    "orders": {"refused": {"$exists": False}},
    "events": {"fullDocument.refused": {"$exists": False}},
}
"""Of validation, by collection: a document with the field ``refused`` breaks them."""


class Target:
    """The copy or the outbox of one test, in a database of its own on the server."""

    name = "mongodb"
    once = True
    refused: Mapping[str, Any] | None = {"refused": True}

    def __init__(self, server: ReplicaSet, name: str, *, log: bool = False) -> None:
        self.server = server
        self.database = f"to_{name}"
        self._log = log
        self._user = f"u{name}"
        self._secret = server.directory / f"uri-{name}"
        self._passwords = 0
        with self.client() as client:
            client.drop_database(self.database)
            made = "events" if log else "orders"
            client[self.database].create_collection(made, validator=RULES[made])
        self.renew()
        self.handler: Mapping[str, Any] = {
            "type": "mongodb",
            "uri": {"file": str(self._secret)},
            "database": self.database,
            **({"outbox": "events"} if log else {}),
        }

    def client(self) -> Any:
        return self.server.client()

    @property
    def uri(self) -> str:
        """As the handler reads it."""
        return self._secret.read_text()

    def start(self) -> None:
        self.server.start()

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        self.server.stop(number)

    def pause(self) -> None:
        for member in self.server.running:
            self.server.signal_member(member, signal.SIGSTOP)

    def expire(self) -> None:
        with self.client() as client:
            client.admin.command("dropUser", self._user)

    def renew(self) -> None:
        self._passwords += 1
        password = f"p{self._passwords}"
        roles = [{"role": "readWrite", "db": self.database}, "clusterMonitor"]
        with self.client() as client:
            users = client.admin.command("usersInfo", self._user)["users"]
            command = "updateUser" if users else "createUser"
            client.admin.command(command, self._user, pwd=password, roles=roles)
        quick = f"{QUICK}&serverSelectionTimeoutMS=2000"
        self._secret.write_text(self.server.uri_as(self._user, password) + quick)

    def sent(self) -> Sequence[Sent] | None:
        if not self._log:
            return None
        with self.client() as client:
            # Not the natural order, which a server changes when it recovers from a crash.
            found = list(client[self.database].events.find().sort(["clusterTime", "_id"]))
        return [
            Sent(
                None if "documentKey" not in each else key_text(bson.encode(each["documentKey"])),
                each["operationType"],
                _plain(each["fullDocument"]) if each.get("fullDocument") else None,
                each["_id"],
            )
            for each in found
        ]

    def documents(self, database: str, collection: str) -> Mapping[str, Mapping[str, Any]]:
        if self._log:
            return last_states(self.sent() or ())
        with self.client() as client:
            return {
                key_text(bson.encode({"_id": each["_id"]})): _plain(each)
                for each in client[self.database][collection].find()
            }

    def raw(self, collection: str) -> list[bytes]:
        """The BSON of each document of a copy, in the order of ``_id``."""
        return raw_documents(self.server, self.database, collection)


def raw_documents(server: ReplicaSet, database: str, collection: str) -> list[bytes]:
    """The BSON of each document of a collection, in the order of ``_id``."""
    codec: Any = bson.CodecOptions(document_class=RawBSONDocument)
    with server.client() as client:
        found = client[database].get_collection(collection, codec_options=codec)
        return [each.raw for each in found.find().sort("_id", 1)]


def _plain(document: Mapping[str, Any]) -> Mapping[str, Any]:
    options = json_util.RELAXED_JSON_OPTIONS
    plain: Mapping[str, Any] = json.loads(json_util.dumps(document, json_options=options))
    return plain


@contextmanager
def serve() -> Iterator[Make]:
    directory = Path(tempfile.mkdtemp(prefix="tailrace-mongodb-"))
    server = ReplicaSet(directory, login=ROOT)

    def make(name: str, *, log: bool = False) -> Target:
        return Target(server, name, log=log)

    try:
        yield make
    finally:
        server.stop()
        shutil.rmtree(directory)
