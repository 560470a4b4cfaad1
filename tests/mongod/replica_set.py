"""A replica set: its primary, elections, and faults of its commands, cursors and oplog."""

import contextlib
import secrets
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pymongo
from pymongo.errors import OperationFailure, PyMongoError

from tailrace.demo.server import REPLICA_SET
from tests.daemon import until
from tests.mongod.operations import operations

from .servers import START_SECONDS, Client, Servers


class ReplicaSet(Servers):
    """A replica set of ``members`` processes, each of which may be killed and restarted.

    With a ``login``, the name and password of a first user who may do everything, every client
    needs credentials. The other arguments are those of :class:`Servers`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        members: int = 1,
        flags: Mapping[str, str | None] | None = None,
        login: tuple[str, str] | None = None,
        query: str = "",
    ) -> None:
        super().__init__(directory, members, flags=flags, query=query)
        if login is not None:
            self.flags["--keyFile"] = str(_key_file(directory))
        try:
            super().start()
            self._initiate(login)
        except BaseException:
            self.stop(signal.SIGKILL)
            raise

    @property
    def uri(self) -> str:
        """A URI of all members, without credentials and without TLS."""
        return f"mongodb://{','.join(self.hosts)}/?replicaSet={REPLICA_SET}"

    def uri_as(self, name: str, password: str) -> str:
        """The URI with a user's credentials."""
        return self.uri.replace("//", f"//{quote_plus(name)}:{quote_plus(password)}@")

    def client(self, **more: Any) -> Client:
        """A client of the whole set."""
        return pymongo.MongoClient(self.uri + self._query, **{**self._credentials, **more})

    def start(self) -> None:
        """Starts every member that does not run, and waits until all replicate."""
        super().start()
        self.primary()
        until(self._all_follow, "all members in replication", START_SECONDS)

    def _initiate(self, login: tuple[str, str] | None) -> None:
        settings = {"electionTimeoutMillis": 2000}
        members = [{"_id": number, "host": host} for number, host in enumerate(self.hosts)]
        with self.direct(0) as client:
            client.admin.command(
                "replSetInitiate", {"_id": REPLICA_SET, "members": members, "settings": settings}
            )
        primary = self.primary()
        if login is not None:
            # While there is no user yet, any client on loopback may create the first one.
            with self.direct(primary) as client:
                client.admin.command("createUser", login[0], pwd=login[1], roles=["root"])
            self._credentials = {"username": login[0], "password": login[1]}
        until(self._all_follow, "all members in replication", START_SECONDS)

    def _all_follow(self) -> bool:
        """True if every member is primary or secondary, so that majority writes cannot stall."""
        with self.client() as client:
            states = client.admin.command("replSetGetStatus")["members"]
        return all(member["state"] in (1, 2) for member in states)

    # --- elections -------------------------------------------------------------------------

    def primary(self) -> int:
        """The number of the primary member; waits until there is one."""

        def find() -> list[int]:
            return [number for number in self.running if self.leads(number)]

        return int(until(find, "a primary", START_SECONDS)[0])

    def secondaries(self) -> list[int]:
        """The numbers of the running members that are not primary."""
        primary = self.primary()
        return [number for number in self.running if number != primary]

    def step_down(self, seconds: int = 10) -> int:
        """Makes the primary step down for ``seconds``; returns the number of the next primary."""
        self._step_down(seconds)
        return self.primary()

    @contextlib.contextmanager
    def without_primary(self) -> Iterator[None]:
        """Until the block ends, no member is primary or can become primary."""
        for member in self.secondaries():
            self._freeze(member, 600)
        self._step_down(600)
        try:
            yield
        finally:
            for member in self.running:
                self._freeze(member, 0)
            self.primary()

    def _step_down(self, seconds: int) -> None:
        wait = min(5, seconds - 1)
        with self.direct(self.primary()) as client:
            client.admin.command(
                {"replSetStepDown": seconds, "secondaryCatchUpPeriodSecs": wait, "force": True}
            )

    def _freeze(self, member: int, seconds: int) -> None:
        with self.direct(member) as client:
            client.admin.command("replSetFreeze", seconds)

    def leads(self, member: int) -> bool:
        """Whether the member is primary."""
        try:
            with self.stranger(member, serverSelectionTimeoutMS=500) as client:
                return bool(client.admin.command("hello")["isWritablePrimary"])
        except PyMongoError:
            return False

    # --- faults ----------------------------------------------------------------------------

    def fail(
        self, command: str, times: int | str = 1, *, member: int | None = None, **data: Any
    ) -> None:
        """Arms ``failCommand`` for a command, or disarms it with ``times="off"``.

        The server adds no error labels here: see :meth:`fail_reads`.
        """
        self.fail_point("failCommand", times, member=member, failCommands=[command], **data)

    def fail_reads(self, code: int = 0, times: int | str = 1, *, member: int | None = None) -> None:
        """Makes getMore fail inside the server, which then adds the error labels itself."""
        name = "failGetMoreAfterCursorCheckout"
        self.fail_point(name, times, member=member, errorCode=code)

    def fail_point(
        self, name: str, times: int | str = 1, *, member: int | None = None, **data: Any
    ) -> None:
        """Arms a fail point on a member (the primary): ``times``, ``"alwaysOn"`` or ``"off"``."""
        mode: Any = times if isinstance(times, str) else {"times": times}
        with self.direct(self.primary() if member is None else member) as client:
            client.admin.command({"configureFailPoint": name, "mode": mode, "data": data})

    def streams(self, database: str) -> list[tuple[int, str, int]]:
        """The change streams on a database: member, namespace and cursor id of each."""
        found = set()
        for member in self.running:
            with self.direct(member) as client:
                matching = {
                    "ns": {"$regex": f"^{database}\\."},
                    "cursor.cursorId": {"$exists": True},
                }
                every = {"idleCursors": True, "allUsers": True, "localOps": True}
                cursors = operations(client, matching, "ns", "cursor.cursorId", **every)
                found |= {(member, each["ns"], each["cursor"]["cursorId"]) for each in cursors}
        return sorted(found)

    def kill_cursors(self, database: str) -> int:
        """Kills the cursors of all change streams on a database; returns how many.

        If a cursor was idle, its next read does not find it (43). If it was in use, the read fails
        with CursorKilled (237), which has no label.
        """
        found = self.streams(database)
        for member, namespace, cursor in found:
            name, _, collection = namespace.partition(".")
            # The cursor may have ended just now.
            with self.direct(member) as client, contextlib.suppress(OperationFailure):
                client[name].command({"killCursors": collection, "cursors": [cursor]})
        return len(found)

    def forget_history(self) -> None:
        """Writes until the oplog has lost its current last entry. The oplog must be small."""
        with self.client() as client:
            oplog = client.local["oplog.rs"]

            def edge(order: int) -> Any:
                return (oplog.find_one(sort=[("$natural", order)]) or {})["ts"]

            end = edge(-1)

            def forgotten() -> bool:
                client.filler.filler.insert_many([{"text": "x" * 200_000} for _ in range(5)])
                return bool(edge(1) > end)

            until(forgotten, "that the oplog is cut", START_SECONDS)
            client.filler.filler.drop()


def _key_file(directory: Path) -> Path:
    """The key file with which members authenticate each other; required where logins are."""
    path = directory / "key"
    if not path.exists():
        path.touch(0o600)
        path.write_text(secrets.token_hex(32))
    return path
