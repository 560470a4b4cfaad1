"""The process that is killed and stopped: what it handed over, and what it reports."""

import json
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.daemon import Daemon, until
from tests.faults.chaos.checkpoints import stored_token
from tests.faults.chaos.history import Arrival, Process, Recipient
from tests.machine import free_port

SCOPE = "counters"
PATIENCE_SECONDS = 90.0
"""The time limit of anything the service must do, such as surviving an election under load."""

RECIPIENTS = (
    Recipient("file", sequence=True),
    Recipient("batch", sequence=True),
    Recipient("single", sequence=False),
    Recipient("table", sequence=True, owns=True),
    Recipient("ledger", sequence=True, owns=True),
)
_FILE = "file"
_LINES = "events.jsonl"
_NOT_SAVED = 3


class Service:
    """``tailrace run`` on one collection, with five handlers.

    ``file`` is the directory of its ``jsonl`` handler, ``store`` the directory of its checkpoints.
    """

    def __init__(self, directory: Path, store: Path, file: Path, uri: str, database: str) -> None:
        self.processes: list[Process] = []
        self.recovered: list[int] = []  # recoveries by process
        self.kills = self.stops = 0
        self.store = store / "tailrace.db"
        self._file = file / _LINES
        targets = {name: f"tests.faults.chaos.destinations:{name}" for name in _python()}
        targets |= dict.fromkeys(("table", "ledger"), "tests.faults.chaos.destinations:Table")
        more: dict[str, dict[str, Any]] = {
            "table": {"batch_size": 7, "options": {"name": "table", "per_thousand": 5}},
            "ledger": {"batch_size": 1, "options": {"name": "ledger", "per_thousand": 0.5}},
            "batch": {"batch_size": 20},
        }
        handlers: dict[str, dict[str, Any]] = {
            _FILE: {"type": "jsonl", "path": str(self._file), "json": "canonical"}
        }
        for name, target in targets.items():
            handlers[name] = {"type": "python", "target": target, **more.get(name, {})}
        slow = {"mode": "initial", "chunk_documents": 10, "documents_per_second": 100}
        scope = {"name": SCOPE, "database": database, "collection": SCOPE, "snapshot": slow}
        self._daemon = Daemon(
            directory,
            uri,
            store={"path": str(self.store)},
            http={"port": free_port()},
            delivery={"lanes": 16},
            scopes=[{**scope, "max_await_time_ms": 200}],
            handlers=handlers,
            routes=[{"scope": SCOPE, "handlers": list(handlers)}],
        )
        self._log_begins = 0
        self._taken: dict[str, int] = {each.name: 0 for each in RECIPIENTS}

    # --- start and end -----------------------------------------------------------------------

    def start(self, driver: str = "motor", read_preference: str = "primary") -> None:
        """Starts the service and waits until it is ready."""
        self._daemon.configuration["mongodb"]["driver"] = driver
        self._daemon.configuration["scopes"][0]["read_preference"] = read_preference
        self._daemon.start()

    def take_snapshot(self) -> None:
        """Requests a snapshot, unless one is in progress."""
        if (self._daemon.status(SCOPE).get("snapshot") or {}).get("state") == "done":
            self._daemon.command("snapshot", "start", SCOPE)

    def kill(self) -> None:
        """Ends it like a crash."""
        assert not self.ended, f"the service ended:\n{self.said[-4000:]}"
        self._daemon.kill()
        self.kills += 1
        self._note(clean=False)

    def stop(self, *, can_save: bool = True) -> None:
        """Stops it like an orchestrator.

        The stop is clean unless the log says that a position could not be saved: then the watcher
        restarted from an older position, as after a crash.
        """
        assert not self.ended, f"the service ended:\n{self.said[-4000:]}"
        code = self._daemon.stop()
        codes = (0,) if can_save else (0, _NOT_SAVED)
        assert code in codes, f"exit code {code}:\n{self.said[-4000:]}"
        self.stops += 1
        self._note(clean=code == 0 and '"checkpoint.not_saved"' not in self.said)

    def discard(self) -> None:
        """Kills it at the end of the test, whatever happened."""
        self._daemon.kill()

    # --- what it reports -----------------------------------------------------------------------

    def until_more(self, count: int) -> None:
        """Waits until every handler has received ``count`` more changes."""
        wanted = {name: self._count(name) + count for name in _python()}

        def got() -> bool:
            return all(self._count(name) >= least for name, least in wanted.items())

        what = f"{count} more changes at every handler"
        until(lambda: self.ended or got(), what, PATIENCE_SECONDS)
        assert not self.ended, f"the service ended:\n{self.said[-4000:]}"

    def has_all(self, count: int) -> bool:
        """Waits until every handler has received ``count`` distinct changes; False if they do not.

        A change that waits for its next attempt is not lost.
        """
        query = "SELECT count(DISTINCT token) FROM arrivals WHERE token LIKE '82%'"
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(self._rows(name, query) != [(count,)] for name in _python()) or (
            len({each.token for each in self._lines() if not each.of_snapshot}) != count
        ):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        return True

    @property
    def ready(self) -> bool:
        """Its readiness, as an orchestrator sees it."""
        return self._daemon.get("/readyz")[0] == 200

    @property
    def said(self) -> str:
        """The log of the current process."""
        return _read(self._daemon.directory / "log")[self._log_begins :].decode()

    @property
    def recoveries(self) -> int:
        """How often the stream resumed or opened anew, or the watcher restarted, in a process."""
        said, how = self.said, ("stream.resumed", "stream.reopening", "watcher.restarting")
        return sum(said.count(f'"{event}"') for event in how)

    @property
    def letters(self) -> list[str]:
        """The dead letters of all processes."""
        return self._daemon.command("dead-letters", "export").splitlines()

    @property
    def ended(self) -> bool:
        """True if the service does not run."""
        process = self._daemon.process
        return process is None or process.poll() is not None

    def _note(self, *, clean: bool) -> None:
        said, everything = self.said, self._arrivals()
        self.recovered.append(self.recoveries)
        self.processes.append(
            Process(
                arrivals={
                    name: [each for each in arrivals if not each.of_snapshot]
                    for name, arrivals in everything.items()
                },
                everything=everything,
                checkpoint=stored_token(self.store, SCOPE),
                starts=said.count('"stream.starting"'),
                clean=clean,
            )
        )
        self._log_begins = len(_read(self._daemon.directory / "log"))

    def _lines(self) -> list[Arrival]:
        return [_arrival(line) for line in _whole(_read(self._file)).splitlines()]

    def _arrivals(self) -> Mapping[str, list[Arrival]]:
        """What every handler has received since the previous process."""
        lines = _whole(_read(self._file)[self._taken[_FILE] :])
        self._taken[_FILE] += len(lines)
        found = {_FILE: [_arrival(line) for line in lines.splitlines()]}
        for name in _python():
            after = self._taken[name]
            columns = "token, document, operation, number"
            query = f"SELECT {columns} FROM arrivals WHERE id > {after} ORDER BY id"
            found[name] = [Arrival(*row) for row in self._rows(name, query)]
            self._taken[name] += len(found[name])
        return found

    def _count(self, name: str) -> int:
        """How many changes a handler has received, including repeated ones."""
        rows = self._rows(name, "SELECT max(id) FROM arrivals")
        return rows[0][0] or 0 if rows else 0

    def _rows(self, name: str, query: str) -> list[tuple[Any, ...]]:
        path = self._daemon.directory / f"{name}.db"
        if not path.exists():
            return []
        try:
            with closing(sqlite3.connect(path)) as database:
                return database.execute(query).fetchall()
        except sqlite3.OperationalError:
            if not self.ended:
                return []  # its tables are being created
            raise


def _python() -> tuple[str, ...]:
    return tuple(each.name for each in RECIPIENTS if each.name != _FILE)


def _arrival(line: bytes) -> Arrival:
    """Reads canonical Extended JSON."""
    event: dict[str, Any] = json.loads(line, object_hook=_plain)
    fields = event.get("fullDocument") or event.get("updateDescription", {}).get("updatedFields")
    return Arrival(
        event["_id"].get("_data") or event["_id"]["snapshot"],
        event.get("documentKey", {}).get("_id", -1),
        event["operationType"],
        fields["n"] if fields else None,
    )


def _plain(value: dict[str, Any]) -> Any:
    if len(value) == 1 and (number := value.get("$numberInt") or value.get("$numberLong")):
        return int(number)
    return value


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _whole(lines: bytes) -> bytes:
    """Removes a partial last line, which the next process truncates too."""
    return lines[: lines.rfind(b"\n") + 1]
