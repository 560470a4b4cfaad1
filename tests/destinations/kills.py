"""Kills daemon and destination again and again while documents change, and compares afterwards.

``python -m tests.destinations.kills --to postgresql --rounds 30``. In each round the daemon is
killed or paused in mid batch, and the destination's server is killed. Two handlers follow the
collection: one with the last state of each document, one that keeps each message. At the end the
state must equal the source, and the messages what was written: each once where promised, otherwise
at least once and in order. A snapshot runs at the start and another one half way.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.daemon import Daemon
from tests.destinations.account import Account, Change, examine
from tests.destinations.copying import assert_untroubled, key_of, until_same, until_seen
from tests.destinations.destination import Destination, Make
from tests.load import Load
from tests.machine import free_port
from tests.mongod import ReplicaSet
from tests.orders import Orders

DOCUMENTS = 50
UNCHANGED = range(1000, 1200)
"""Documents that are there before, and that only snapshots read."""
SNAPSHOTS = 2

_EVERY_SECONDS = 0.01
_LONGEST_SECONDS = 1.5
"""The longest time in which a round lets everything run, and the longest pause and outage."""


@dataclass
class Writer:
    """Inserts, updates, replaces and deletes; each change gives its document another number."""

    collection: Any
    dice: random.Random
    written: dict[int, list[Change]] = field(default_factory=lambda: defaultdict(list))

    def write(self, numbers: list[int]) -> None:
        for number in numbers:
            one = {"_id": self.dice.randrange(DOCUMENTS)}
            changes = self.written[one["_id"]]
            if not changes or changes[-1] is None:
                self.collection.insert_one({**one, "n": number})
            elif self.dice.random() < 0.1:
                self.collection.delete_one(one)
                changes.append(None)
                continue
            elif self.dice.random() < 0.3:
                self.collection.replace_one(one, {"n": number, "replaced": True})
            else:
                self.collection.update_one(one, {"$set": {"n": number}})
            changes.append(number)

    @property
    def by_key(self) -> dict[str, list[Change]]:
        return {key_of(identity): changes for identity, changes in self.written.items()}


def run(
    orders: Orders, make: Make, rounds: int, seed: int, tell: Callable[[str], None] = print
) -> Account:
    """Runs the rounds in the collection ``orders``; returns the account of the messages.

    Raises ``AssertionError`` if the state differs from the source, or a daemon did not end well.
    """
    dice = random.Random(seed)
    state, log = make(f"{orders.database}s"), make(f"{orders.database}l", log=True)
    with orders.server.client() as client:
        images = {"changeStreamPreAndPostImages": {"enabled": True}}
        collection = client[orders.database].create_collection("orders", **images)
        collection.insert_many([{"_id": each, "n": -1} for each in UNCHANGED])
        writer = Writer(collection, random.Random(seed + 1))
        daemon = _daemon(orders, state, log).start()
        try:
            with Load(writer.write, _EVERY_SECONDS) as load:
                for number in range(rounds):
                    if number == rounds // 2:
                        _snapshot(daemon)
                    done = _round(daemon, state, dice, kills=number == 0 or dice.random() < 0.6)
                    tell(f"round {number + 1}: {done}, {load.written} changes")
                load.more()
            daemon.until_ready()
            expected = {key_of(each["_id"]): each for each in collection.find()}

            def found() -> dict[str, Any]:
                return dict(state.documents(orders.database, "orders"))

            until_same(found, expected, daemon)
            seen = log.documents
            until_seen(lambda: dict(seen(orders.database, "orders")) == expected, "all messages")
        finally:
            state.start()
        assert_untroubled(daemon)
    return examine(writer.by_key, log.sent() or (), snapshots=SNAPSHOTS, once=log.once)


def _daemon(orders: Orders, state: Destination, log: Destination) -> Daemon:
    handlers = {"state": {**state.handler}, "log": {**log.handler}}
    small = {"mode": "initial", "chunk_documents": 20}
    return orders.daemon(
        scope={"full_document": "required", "snapshot": small},
        handlers=handlers,
        routes=[{"scope": "orders", "handlers": list(handlers)}],
        checkpoint={"interval_seconds": 0.5},
        http={"port": free_port()},
    )


def _snapshot(daemon: Daemon) -> None:
    """Starts the second snapshot, once the first one is done and saved."""
    daemon.until_copied()
    daemon.until_ready()
    daemon.command("snapshot", "start", "orders")


def _round(daemon: Daemon, server: Destination, dice: random.Random, *, kills: bool) -> str:
    """One fault of the daemon, and one kill of the server, at any moment; both run at the end."""

    def wait() -> None:
        time.sleep(dice.random() * _LONGEST_SECONDS)

    wait()
    if kills:
        daemon.kill()
        daemon.start(ready=False)
    else:
        daemon.signal(signal.SIGSTOP)
        wait()
        daemon.signal(signal.SIGCONT)
    wait()
    server.stop(signal.SIGKILL)
    wait()
    server.start()
    daemon.until_ready()
    return f"daemon {'killed' if kills else 'paused'}, server killed"


def main() -> int:
    """Runs what the arguments describe; returns 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="tests.destinations.kills", description=__doc__)
    parser.add_argument("--to", required=True, help="the type of the destination")
    parser.add_argument("--rounds", type=int, default=30, help="how often each is killed")
    parser.add_argument("--seed", type=int, default=None, help="draws the same faults again")
    options = parser.parse_args()
    seed = random.randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tailrace-kills-")))
        server = ReplicaSet(directory / "mongod")
        stack.callback(server.stop)
        make = stack.enter_context(import_module(f"tests.destinations.{options.to}").serve())

        def daemon(uri: str, name: str, **sections: Any) -> Daemon:
            made = Daemon(directory / name, uri, **sections)
            stack.callback(made.kill)
            return made

        tell = lambda line: print(line, flush=True)  # noqa: E731
        account = run(Orders(server, "kills", daemon), make, options.rounds, seed, tell)
    print(account)
    print(*account.problems, sep="\n")
    return 1 if account.problems else 0


if __name__ == "__main__":
    sys.exit(main())
