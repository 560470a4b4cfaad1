"""The process that is killed: what it hands over, and what is seen of it from outside."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.daemon import Daemon, until
from tests.faults.chaos.history import Arrival, Life, Position

SCOPE = "counters"
_SEQUENTIAL, _PARALLEL = "events.jsonl", "parallel.jsonl"
_WATCH_SECONDS = 0.02

HANDLER = """
import json
import os
import random

import anyio

file = os.open("parallel.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
busy = set()


async def handle(event):
    \"\"\"Takes its time, then says what it got: documents overlap, changes of one must not.\"\"\"
    document = event.document_key["_id"]
    overlaps = document in busy
    busy.add(document)
    # A few take longer than a checkpoint's interval: there is nearly always one in flight.
    slow = random.uniform(0, 0.6) if random.random() < 0.03 else 0
    await anyio.sleep(slow + random.expovariate(200))
    whole = event.full_document or (event.document.get("updateDescription") or {}).get(
        "updatedFields", {}
    )
    line = {
        "token": event.document["_id"]["_data"],
        "document": document,
        "operation": "overlapping " * overlaps + event.operation_type,
        "number": whole.get("n"),
    }
    os.write(file, json.dumps(line).encode() + b"\\n")
    busy.discard(document)
"""


class Service:
    """``tailrace run`` on one collection, with a handler in sequence and one in parallel."""

    def __init__(self, directory: Path, store: Path, uri: str, database: str) -> None:
        self.lives: list[Life] = []
        self.recovered: list[int] = []  # by life: its recoveries
        self.kills = 0
        self._store = store / "checkpoints.db"
        self._daemon = Daemon(
            directory,
            uri,
            checkpoint={"path": str(self._store), "interval_seconds": 0.1},
            delivery={"lanes": 16, "dead_letters": {"path": "letters.jsonl"}},
            scopes=[
                {
                    "name": SCOPE,
                    "database": database,
                    "collection": "counters",
                    "max_await_time_ms": 200,
                }
            ],
            handlers={
                "sequence": {"type": "jsonl", "path": _SEQUENTIAL, "json": "canonical"},
                "parallel": {"type": "python", "target": "parallel:handle"},
            },
            routes=[{"scope": SCOPE, "handlers": ["sequence", "parallel"]}],
        )
        (directory / "parallel.py").write_text(HANDLER)
        self._begin = dict.fromkeys((_SEQUENTIAL, _PARALLEL, "log"), 0)
        self._counted = 0, 0  # bytes and lines of the handler in sequence

    # --- life ------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts it and waits until it reads."""
        self._daemon.start()

    def start_anyway(self) -> None:
        """Starts it where that may be refused, by an exit code and a message."""
        self._daemon.start(ready=False)
        until(lambda: self.ended or '"stream.starting"' in self.said, "that it follows, or ends")
        if self.ended:
            assert self._daemon.wait() in (1, 2), self.said
            assert "Traceback" not in self.said, self.said
            self._end(clean=False)

    def kill(self) -> None:
        """As a crash does it."""
        assert not self.ended, f"the service ended:\n{self.said[-4000:]}"
        self._daemon.kill()
        self.kills += 1
        self._end(clean=False)

    def stop(self) -> int:
        """As an orchestrator does it; the exit code."""
        code = self._daemon.stop()
        self._end(clean=True)
        return code

    def discard(self) -> None:
        """What a fixture does at the end, whatever happened."""
        self._daemon.kill()

    # --- what is seen of it ----------------------------------------------------------------

    @property
    def handled(self) -> int:
        """How many lines the handler in sequence has written, in all its lives."""
        with open(self._daemon.directory / _SEQUENTIAL, "ab+") as file:
            file.seek(self._counted[0])
            new = file.read()
        whole = new.rfind(b"\n") + 1
        self._counted = self._counted[0] + whole, self._counted[1] + new.count(b"\n")
        return self._counted[1]

    def until_more(self, count: int) -> None:
        """Waits until it has handled so many more."""
        wanted = self.handled + count
        until(lambda: self.handled >= wanted or self.ended, f"{count} more changes")
        assert not self.ended, f"the service ended:\n{self.said[-4000:]}"

    @property
    def ready(self) -> bool:
        """What it tells an orchestrator."""
        return self._daemon.get("/readyz")[0] == 200

    @property
    def said(self) -> str:
        """Its log, in this life."""
        return _read(self._daemon.directory / "log")[self._begin["log"] :].decode()

    @property
    def recoveries(self) -> int:
        """How often its stream resumed or its watcher began anew, in this life."""
        return self.said.count('"stream.resumed"') + self.said.count('"watcher.restarting"')

    @property
    def failed_saves(self) -> int:
        """How often a checkpoint could not be saved, in this life."""
        return self.said.count("disk is full")

    def has(self, document: int) -> bool:
        """Whether both handlers have got a change of this document."""
        ids = [b'"_id":{"$numberInt":"%d"}' % document, b'"document":%d,' % document]
        files = [_read(self._daemon.directory / name) for name in (_SEQUENTIAL, _PARALLEL)]
        return all(each in file.replace(b" ", b"") for each, file in zip(ids, files, strict=True))

    def events(self) -> Iterator[dict[str, Any]]:
        """Every event of all lives in sequence, with plain numbers."""
        for line in _read(self._daemon.directory / _SEQUENTIAL).splitlines():
            yield _event(line)

    @property
    def ended(self) -> bool:
        """Whether it does not run."""
        process = self._daemon.process
        return process is None or process.poll() is not None

    def _end(self, *, clean: bool) -> None:
        said = self.said
        self.recovered.append(self.recoveries)
        self.lives.append(
            Life(
                sequential=[_arrival(_event(line)) for line in self._lines(_SEQUENTIAL)],
                parallel=[Arrival(**json.loads(line)) for line in self._lines(_PARALLEL)],
                checkpoint=stored_event(self._store),
                starts=said.count('"stream.starting"'),
                clean=clean,
            )
        )
        self._begin["log"] = len(_read(self._daemon.directory / "log"))

    def _lines(self, name: str) -> list[bytes]:
        """The whole lines since the life before. A torn one is cut off by the next life."""
        new = _read(self._daemon.directory / name)[self._begin[name] :]
        whole = new[: new.rfind(b"\n") + 1]
        self._begin[name] += len(whole)
        return whole.splitlines()


class Watch:
    """Looks into the checkpoint store again and again; a context manager."""

    def __init__(self, store: Path) -> None:
        self._store = store / "checkpoints.db"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch")
        self.seen: list[Position] = []

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_WATCH_SECONDS):
            record = _record(self._store)
            if record is None or record["cluster_time"] is None:
                continue
            seconds, increment = record["cluster_time"]
            position = Position(record["epoch"], record["sequence"], (seconds, increment))
            if position not in self.seen[-1:]:
                self.seen.append(position)


def stored_event(path: Path) -> str | None:
    """The token of the last change before the stored position."""
    record = until(lambda: _record(path), "the stored position")
    token = record["event_token"]
    return json.loads(token)["_data"] if token else None


def truncate_log(store: Path) -> None:
    """Empties the write-ahead log, so that whatever is saved next needs room on the disk."""

    def truncated() -> bool:
        with _opened(store / "checkpoints.db", "rw") as connection:
            busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not busy

    until(truncated, "a log of no length")


def _record(path: Path) -> dict[str, Any] | None:
    """The record as it is stored, or ``None`` where it cannot be looked at just now."""
    try:
        with _opened(path, "ro") as connection:
            row = connection.execute(
                "SELECT document FROM checkpoints WHERE scope = ?", (SCOPE,)
            ).fetchone()
    except sqlite3.OperationalError:
        return None
    return json.loads(row[0]) if row else None


@contextmanager
def _opened(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    uri = f"{path.as_uri()}?mode={mode}"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
        yield connection


def _event(line: bytes) -> dict[str, Any]:
    """A line of canonical Extended JSON, its numbers plain."""
    event: dict[str, Any] = json.loads(line, object_hook=_plain)
    return event


def _plain(value: dict[str, Any]) -> Any:
    if len(value) == 1 and (number := value.get("$numberInt") or value.get("$numberLong")):
        return int(number)
    return value


def _arrival(event: dict[str, Any]) -> Arrival:
    fields = event.get("fullDocument") or event.get("updateDescription", {}).get("updatedFields")
    return Arrival(
        event["_id"]["_data"],
        event["documentKey"]["_id"],
        event["operationType"],
        fields["n"] if fields else None,
    )


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""
