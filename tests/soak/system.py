"""The processes of a run: the replica set, the destinations and the service."""

from __future__ import annotations

import json
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bson import json_util

from tests.checkout import IMPORTS
from tests.daemon import Daemon, until
from tests.destinations import postgresql, redis
from tests.destinations.destination import Destination
from tests.machine import free_port
from tests.mongod import ReplicaSet
from tests.soak.changes import ChangesAccount, DocumentKey, FollowedFile, FollowedLake
from tests.soak.writing import COLLECTIONS, DATABASE

SCOPE = "shop"
_OPLOG_MB = "2000"


@dataclass
class SoakSystem:
    """``copies`` hold rows; the other handlers hold changes, of which there is an account."""

    server: ReplicaSet
    copies: dict[str, Destination]
    run: Daemon
    followed: Sequence[tuple[ChangesAccount, FollowedFile | FollowedLake]]

    # --- faults --------------------------------------------------------------------------------

    def elect(self) -> str:
        """The primary steps down."""
        before = self.server.primary()
        return f"member {before} → {self.server.step_down(10)}"

    def kill_primary(self) -> str:
        """The primary is killed, and starts again once another one leads."""
        before = self.server.primary()
        self.server.stop_member(before, signal.SIGKILL)
        after = self.server.primary()
        self.server.start()
        return f"member {before} → {after}"

    def restart(self, number: signal.Signals) -> str:
        self.run.signal(number)
        code = self.run.wait(120)
        self.run.start(ready=False)
        return f"{number.name}: exit code {code}"

    def snapshot(self) -> str:
        return self.run.command("snapshot", "start", SCOPE).strip()

    # --- what was delivered --------------------------------------------------------------------

    def read_changes(self) -> None:
        """Reads the events that the file and the lake have got since the last time."""
        for account, follower in self.followed:
            account.take(follower.new())

    def accounts(self) -> list[ChangesAccount]:
        return [account for account, _ in self.followed]

    def told(self) -> dict[str, Any]:
        """For ``result.json``."""
        accounts = self.accounts()
        names = ("name", "events", "repeats", "lost")
        return {
            "accounts": [{name: getattr(one, name) for name in names} for one in accounts],
            "complaints": [complaint for one in accounts for complaint in one.complaints],
            "dead_letters": len(self.run.letters()),
        }

    def source(self) -> dict[DocumentKey, Any]:
        """All documents, as relaxed Extended JSON."""
        options = json_util.RELAXED_JSON_OPTIONS
        with self.server.client() as client:
            return {
                (name, document["_id"]): json.loads(json_util.dumps(document, json_options=options))
                for name in COLLECTIONS
                for document in client[DATABASE][name].find()
            }

    def unequal(self) -> dict[str, list[str]]:
        """By handler the documents that are not those of the source; empty lists are good."""
        self.read_changes()
        source = self.source()
        numbers = {key: document["n"] for key, document in source.items()}
        found = {
            account.name: _differing(numbers, account.documents) for account in self.accounts()
        }
        for name, destination in self.copies.items():
            held = {
                (collection, json.loads(key)["_id"]): document
                for collection in COLLECTIONS
                for key, document in destination.documents(DATABASE, collection).items()
            }
            found[name] = _differing(source, held)
        return found

    def caught_up(self, seconds: float, interrupted: threading.Event) -> dict[str, list[str]]:
        """What is unequal once nothing is, once nothing more has changed for so long, or after an
        interrupt."""
        last: dict[str, list[str]] = {}

        def is_equal() -> bool:
            last.update(self.unequal())
            return interrupted.is_set() or not any(last.values())

        with suppress(AssertionError):  # the caller sees what differs
            until(is_equal, "equal destinations", seconds, lambda: sum(map(len, last.values())))
        return last


def _differing(wanted: dict[DocumentKey, Any], held: dict[DocumentKey, Any]) -> list[str]:
    keys = wanted.keys() | held.keys()
    return sorted("/".join(key) for key in keys if wanted.get(key) != held.get(key))


@contextmanager
def soak_system(directory: Path) -> Iterator[SoakSystem]:
    """Starts the servers; the service does not run yet. Its files stay in the directory."""
    with (
        tempfile.TemporaryDirectory(prefix="tailrace-soak-") as servers,
        postgresql.serve() as to_postgresql,
        redis.serve() as to_redis,
    ):
        copies = {"copy": to_postgresql("soak"), "cache": to_redis("soak")}
        server = ReplicaSet(Path(servers), members=3, flags={"--oplogSize": _OPLOG_MB})
        run = Daemon(directory / "service", server.uri, **_sections(copies))
        run.environ = {
            "PYTHONPATH": IMPORTS
        }  # a start of Python, and no fork: its memory is its own
        followed = (
            (ChangesAccount("file"), FollowedFile(run.directory / "events.jsonl")),
            (ChangesAccount("lake"), FollowedLake(run.directory / "lake", SCOPE)),
        )
        try:
            yield SoakSystem(server, copies, run, followed)
        finally:
            run.kill()
            server.stop()


def _sections(copies: dict[str, Destination]) -> dict[str, Any]:
    handlers = {name: {**destination.handler} for name, destination in copies.items()}
    return {
        "checkpoint": {"interval_seconds": 1},
        "supervisor": {"first_seconds": 0.5, "cap_seconds": 30},
        "shutdown": {"grace_seconds": 25},
        "http": {"port": free_port()},
        "scopes": [
            {
                "name": SCOPE,
                "database": DATABASE,
                "full_document": "lookup",
                "snapshot": "initial",
            }
        ],
        "handlers": {
            **handlers,
            "file": {"type": "jsonl", "path": "events.jsonl", "fsync": False},
            "lake": {"type": "parquet", "path": "lake"},
        },
        "routes": [{"scope": SCOPE, "handlers": [*handlers, "file", "lake"]}],
    }
