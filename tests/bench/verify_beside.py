"""``tailrace verify`` beside changes and elections: it must tell no difference.

``python -m tests.bench.verify_beside [--comparisons N] [--to NAME] [--driver NAME]``. A replica set
of three members gets about 2,000 changes a second, some of them in transactions, many of the same
few documents, and its primary steps down every 20 seconds. Verifications follow one another,
unthrottled, until so many rows have been compared. Exit code 1: a difference was told.

``--delays SECONDS`` has no elections. It measures how long a change takes to its row in PostgreSQL,
in turns with verifications and without.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from statistics import quantiles
from typing import Any

import psycopg
from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateOne
from pymongo.errors import PyMongoError

from tailrace.observe.health_check import request
from tests.background import in_background
from tests.bench.verify import QUICK_DOCUMENTS, is_copied, sections
from tests.daemon import Daemon, until
from tests.mongod import ReplicaSet
from tests.writers import mixed_ids

CHANGES_PER_SECOND = 2000
ELECTION_SECONDS = 20.0
_ROUNDS_PER_SECOND = 20
_HOT = 50
_TURN_SECONDS = 8.0
_PROBES_PER_SECOND = 20
_COPY_SECONDS = 600.0
_RESULTS = ("compared", "equal", "different", "missing", "too_many", "in_flux", "set_aside")


@dataclass
class Changes:
    """A thread that writes about 2,000 changes a second."""

    server: ReplicaSet
    ids: Sequence[Any]
    count: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def going_on(self) -> Iterator[Changes]:
        with in_background(self._write, self._over, "changes"):
            yield self

    def _write(self) -> None:
        dice, number = random.Random(1), 0
        at_once = CHANGES_PER_SECOND // _ROUNDS_PER_SECOND
        due = time.monotonic()
        with self.server.client() as client:
            collection = client.bench.orders
            while not self._over.wait(max(due - time.monotonic(), 0)):
                due = max(due + 1 / _ROUNDS_PER_SECOND, time.monotonic() - 1)
                number += 1
                wanted = [self._one(dice) for _ in range(at_once)]
                with suppress(PyMongoError), ExitStack() as stack:  # without a primary, later
                    session = None
                    if number % 10 == 0:
                        session = stack.enter_context(client.start_session())
                        stack.enter_context(session.start_transaction())
                    collection.bulk_write(wanted, ordered=False, session=session)
                    self.count += at_once

    def _one(self, dice: random.Random) -> Any:
        among = self.ids[:_HOT] if dice.random() < 0.1 else self.ids
        key, roll = {"_id": dice.choice(among)}, dice.random()
        if roll < 0.1:
            return DeleteOne(key)
        if roll < 0.3:
            return ReplaceOne(key, document(dice.random()), upsert=True)
        fields = {"$inc": {"n": 1}, "$set": {f"at{dice.randrange(5)}": dice.random()}}
        return UpdateOne(key, fields, upsert=roll < 0.5)


def document(number: float) -> dict[str, Any]:
    """One of about 700 B."""
    return {"n": 0, "number": number, "tags": ["a", "b"], "pad": "x" * 600}


@contextmanager
def elections(server: ReplicaSet, count: Counter[str]) -> Iterator[None]:
    """The primary steps down every 20 seconds."""
    over = threading.Event()

    def elect() -> None:
        while not over.wait(ELECTION_SECONDS):
            with suppress(PyMongoError, AssertionError):
                server.step_down(5)
                count["elections"] += 1

    with in_background(elect, over, "elections"):
        yield


def verification(run: Daemon, **action: Any) -> dict[str, Any]:
    """Starts one, and returns its result."""
    body = json.dumps({"action": "start", **action})
    path = "/scopes/orders/verify"

    def begins() -> bool:
        return request("127.0.0.1", run.port, path, method="POST", body=body)[0] == 202

    until(begins, "its begin")

    def over() -> Any:
        answer = run.get(path)[1]
        found = json.loads(answer)["verification"] if answer else {"state": "running"}
        return found if found["state"] not in ("running", "paused") else None

    found: dict[str, Any] = until(over, "the verification", _COPY_SECONDS)
    return found


def prove(run: Daemon, server: ReplicaSet, ids: Sequence[Any], comparisons: int) -> bool:
    """Whether no verification tells a difference."""
    count, began = Counter[str](), time.monotonic()
    with Changes(server, ids).going_on() as changes, elections(server, count):
        while count["compared"] < comparisons:
            found = verification(run)
            count.update({name: found[name] for name in _RESULTS})
            seconds = time.monotonic() - began
            rate = changes.count / seconds
            print(f"{dict(count)}, {rate:,.0f} changes/s", flush=True)
            if found["keys"] or found["state"] != "done":
                print(json.dumps(found)[:5000], flush=True)
                return False
    return True


def delays(run: Daemon, server: ReplicaSet, ids: Sequence[Any], dsn: str, seconds: float) -> None:
    """Prints the delay from a change to its row, with and without verifications."""
    arrived: dict[str, float] = {}
    sent: dict[bool, dict[str, float]] = {False: {}, True: {}}
    with ExitStack() as stack:
        connection = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        connection.execute(
            "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM pg_notify('probe', NEW.document ->> '_id'); RETURN NULL; END $$;"
            "CREATE TRIGGER tell AFTER INSERT ON orders FOR EACH ROW "
            "WHEN (NEW.document ->> '_id' LIKE 'probe%') EXECUTE FUNCTION tell(); LISTEN probe"
        )
        over = threading.Event()

        def listen() -> None:
            while not over.is_set():
                for each in connection.notifies(timeout=0.5):
                    arrived[each.payload] = time.monotonic()

        def verify() -> None:
            while not over.is_set():
                if verifies.wait(0.1):
                    verification(run)

        verifies, client = threading.Event(), stack.enter_context(server.client())
        threads = [threading.Thread(target=each) for each in (listen, verify)]
        for thread in threads:
            thread.start()
        stack.enter_context(Changes(server, ids).going_on())
        time.sleep(3)
        end, number = time.monotonic() + seconds, 0
        while (now := time.monotonic()) < end:
            turn = int(now / _TURN_SECONDS) % 2 == 1
            (verifies.set if turn else verifies.clear)()
            number += 1
            key = f"probe{number}"
            if now % _TURN_SECONDS > 2:  # what the last turn left is over
                sent[turn][key] = time.monotonic()
            client.bench.orders.bulk_write([InsertOne({"_id": key})])
            time.sleep(1 / _PROBES_PER_SECOND)
        time.sleep(3)
        over.set()
        for thread in threads:
            thread.join()
    p99 = {}
    for turn, keys in sent.items():
        taken = [arrived[key] - at for key, at in keys.items() if key in arrived]
        cuts = quantiles(taken, n=100)
        p99[turn] = cuts[98]
        what = "with verifications" if turn else "without"
        print(f"{what}: p50 {cuts[49] * 1000:.1f} ms, p99 {cuts[98] * 1000:.1f} ms, {len(taken)}")
    print(f"p99: {p99[True] / p99[False]:.2f} of that without")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--comparisons", type=int, default=1_000_000)
    options.add_argument("--documents", type=int, default=QUICK_DOCUMENTS)
    options.add_argument("--to", default="postgresql", choices=["postgresql", "mongodb", "redis"])
    options.add_argument("--driver", default="motor", choices=["motor", "pymongo"])
    options.add_argument("--full-document", default="lookup")
    options.add_argument("--members", type=int, default=3)
    options.add_argument("--delays", type=float, default=0.0, metavar="SECONDS")
    chosen = options.parse_args()
    ids = mixed_ids(chosen.documents)
    serve = import_module(f"tests.destinations.{chosen.to}").serve
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory, serve() as made:
        destination = made("beside")
        members = 1 if chosen.delays else chosen.members
        server = ReplicaSet(Path(directory) / "mongod", members=members)
        configured = sections(destination.handler, chosen.full_document)
        mongodb = {"uri": server.uri, "driver": chosen.driver}
        run = Daemon(Path(directory) / "run", server.uri, **configured, mongodb=mongodb)
        try:
            with server.client() as client:
                client.bench.orders.insert_many({"_id": each, **document(0)} for each in ids)
            run.start()
            until(lambda: is_copied(run), "the copy", _COPY_SECONDS)
            if chosen.delays:
                delays(run, server, ids, destination.dsn, chosen.delays)
                return 0
            return 0 if prove(run, server, ids, chosen.comparisons) else 1
        finally:
            run.kill()
            server.stop()


if __name__ == "__main__":
    raise SystemExit(main())
