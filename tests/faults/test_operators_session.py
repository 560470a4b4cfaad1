"""A session of an operator, from a shell and over HTTP, at two processes that share a loaded scope.

Each step is asked for at the process that stands by, too: it passes the order on, or names the
owner. In the end the handlers have every change once, and again only what was asked for.
"""

import json
import threading
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.actions import act
from tests.daemon import Daemon, Make, until, whole_lines
from tests.machine import free_port
from tests.mongod import ReplicaSet
from tests.orders import Orders

SOURCE = """
import json
from pathlib import Path

HERE = Path.cwd().parent

def note(name, event):
    key = event.document_key["_id"]
    line = [name, event.ns.coll, key, event.operation_type, event.cluster_time.time]
    with open(HERE / "noted", "a") as file:
        file.write(json.dumps(line) + "\\n")

async def audit(event):
    note("audit", event)

async def mirror(event):
    if "poison" in (event.full_document or {}) and not (HERE / "mended").exists():
        raise ValueError("poison")
    note("mirror", event)

async def extra(event):
    note("extra", event)
"""

_HANDLERS = ("audit", "mirror")


class Session:
    """The two processes; ``noted``: what their handlers got."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.runs = [self._daemon(name).start() for name in ("one", "two")]

    def _daemon(self, name: str) -> Daemon:
        taken = ["insert", "update", "replace"]
        run = self.orders.daemon(
            name,
            source=SOURCE,
            store={"type": "mongodb", "database": f"{self.orders.database}_store"},
            replicas={"lease_seconds": 10, "name": name},
            http={"port": free_port()},
            delivery={"retry": {"attempts": 2, "first_seconds": 0.01}},
            handlers={each: {"type": "python", "target": f"mine:{each}"} for each in _HANDLERS},
            routes=[
                {"scope": "orders", "handlers": ["audit"]},
                {"scope": "orders", "handlers": ["mirror"], "operations": taken},
            ],
        )
        del run.configuration["scopes"][0]["collection"]
        return run

    @property
    def noted(self) -> list[tuple[Any, ...]]:
        """Handler, collection, ``_id``, operation and second of each call."""
        path = self.runs[0].directory.parent / "noted"
        lines = whole_lines(path.read_text()) if path.exists() else []
        return [tuple(json.loads(line)) for line in lines]

    def owner(self) -> Daemon:
        def found() -> Daemon | None:
            owners = [run for run in self.runs if run.metric("tailrace_lease_held") == 1]
            return owners[0] if len(owners) == 1 else None

        owner: Daemon = until(found, "an owner")
        return owner

    def ask(self, path: str, status: int = 202, **body: Any) -> Any:
        """The answer of the process that can give it; the other one must name it."""
        for run in self.runs:
            code, answer = act(run, path, **body)
            if code == 409 and "and not by this process: ask there" in answer:
                continue
            assert code == status, answer
            return answer
        raise AssertionError(f"nobody answered {path}: {answer}")

    def until_states(self, *states: str) -> None:
        until(lambda: self.owner().status()["state"] in states, " or ".join(states))

    def moves(self, move: dict[str, Any]) -> bool:
        """Whether the scope has moved so: asked for at a process that may not be its owner."""
        status, answer = act(self.runs[0], "/scopes/orders/seek", **move)
        assert status in (202, 409, 503), answer
        return status == 202

    def why(self, key: str, collection: str, handler: str = "mirror") -> str:
        """What became of the last change of a document for the handler."""
        asks = ("why", "--scope", "orders", "--key", key, "--collection", collection, "--json")
        found = json.loads(self.runs[0].command(*asks))
        state: str = found["changes"][0]["handlers"][handler]["state"]
        return state

    def second(self) -> int:
        """A second of the server's time that has just begun."""
        with self.orders.server.client() as client:
            before = client.admin.command("ping")["operationTime"].time
            found: int = until(lambda: _time(client) > before and _time(client), "a second")
            return found

    def replay(self) -> dict[str, Any]:
        """Waits for the end of the replay of a span."""
        path = "/scopes/orders/replay"
        until(lambda: '"running"' not in self.owner().get(path)[1], "the end of the replay")
        found: dict[str, Any] = json.loads(self.owner().get(path)[1])["replay"]
        return found


def _time(client: Any) -> int:
    return int(client.admin.command("ping")["operationTime"].time)


def text(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()


@pytest.fixture
def session(replica_set: ReplicaSet, database: str, daemon: Make) -> Session:
    orders = Orders(replica_set, database, daemon)
    orders.insert_each([{"_id": "before"}], "old")
    return Session(orders)


def test_a_session_of_an_operator(session: Session, replica_set: ReplicaSet) -> None:
    one, two = session.runs
    orders, again = session.orders, Counter[tuple[Any, ...]]()
    with orders.load(0.02) as load, replica_set.client() as client:
        special = client[orders.database].special
        load.more(30)
        begin = session.second()
        special.insert_one({"_id": 1})
        special.delete_one({"_id": 1})
        orders.insert_each([{"_id": name, "poison": 1} for name in ("bad", "worse")])
        until(lambda: len(one.letters()) == 2, "2 dead letters")
        rewind = session.second()
        load.more(30)

        # A pause is applied by the owner, whoever is asked. Then nothing more comes.
        two.command("scopes", "pause", "orders")
        session.until_states("paused")
        assert "is paused already" in session.ask("/scopes/orders/pause")["message"]
        quiet = session.noted
        load.more(30)
        assert session.noted == quiet

        # A move back is tried, done during an election, undone, and done again.
        tried = session.ask("/scopes/orders/seek", at=text(rewind), dry_run=True)
        assert (tried["direction"], tried["handlers"]) == ("back", list(_HANDLERS))
        election = threading.Thread(target=replica_set.step_down)
        election.start()
        moved: dict[str, Any] = {"at": text(rewind)}
        for move in (moved, {"undo": True}, moved):
            until(lambda move=move: session.moves(move), str(move))
        election.join()
        again += Counter(each for each in quiet if each[4] >= rewind)
        one.command("scopes", "resume", "orders")
        session.until_states("streaming", "caught_up")

        # Changes come again to one handler, of a collection and of a document; and into a file.
        asks = {"from": text(begin), "handler": "audit"}
        for chosen in ({"collections": ["special"]}, {"keys": ['"bad"'], "to": text(rewind)}):
            session.ask("/scopes/orders/replay", **asks, **chosen)
            assert session.replay()["state"] == "done"
        of = [each for each in quiet if each[0] == "audit" and each[2] in (1, "bad")]
        again += Counter(each for each in of if each[1:3] in (("special", 1), ("orders", "bad")))
        options = ("--from", text(begin), "--collection", "special", "--to-file", "file.jsonl")
        two.command("scopes", "replay", "orders", *options)
        assert two.ids("file.jsonl") == [1, 1]

        # Documents that are missing at a destination are found; dead letters are dealt with.
        assert session.why("1", "special") == "filtered"
        assert session.why('"before"', "old") == "before_start"
        assert session.why('"bad"', "orders") == "dead_letter"
        ids = {each["event"]["documentKey"]["_id"]: each["id"] for each in one.letters()}
        bad, worse = ids["bad"], ids["worse"]  # they failed at the same time, in either order
        assert session.ask(f"/dead-letters/{bad}/replay")["failed"] == 1
        (one.directory.parent / "mended").touch()
        assert session.ask(f"/dead-letters/{bad}/replay")["replayed"] == 1
        session.ask(f"/dead-letters/{worse}/discard")
        assert one.letters() == []
        assert session.why('"bad"', "orders") == "handled"

        # A route is added, and the scope moves: paused, so that nothing comes again.
        for run in session.runs:
            run.configuration["handlers"]["extra"] = {"type": "python", "target": "mine:extra"}
            route = {"scope": "orders", "handlers": ["extra"], "operations": ["delete"]}
            run.configuration["routes"].append(route)
            run.configured()
            assert "handlers opened: extra" in run.command("reload")
        session.until_states("streaming", "caught_up")
        special.delete_one({"_id": special.insert_one({"_id": 2}).inserted_id})
        until(lambda: any(each[:3] == ("extra", "special", 2) for each in session.noted), "extra")
        one.command("scopes", "pause", "orders")
        session.until_states("paused")
        epoch = session.owner().status()["lease"]["epoch"]
        two.command("scopes", "release", "orders")
        until(lambda: session.owner().status()["lease"]["epoch"] > epoch, "the next owner")
        session.until_states("paused")
        two.command("scopes", "resume", "orders")
        load.more(30)

    def inserted(handler: str) -> set[Any]:
        return {k for h, c, k, *_ in session.noted if (h, c) == (handler, "orders")}

    until(lambda: load.written - 1 in inserted("mirror") & inserted("audit"), "the last change")
    numbers = set(range(load.written))
    assert inserted("audit") == numbers | {"bad", "worse"}
    assert inserted("mirror") == numbers | {"bad"}
    assert Counter(session.noted) == Counter(set(session.noted)) + again
    for run in session.runs:
        assert run.stop() == 0
        assert "Traceback" not in run.log
    done = [log for run in session.runs for log in run.logged("action.done")]
    assert {log["action"] for log in done} == {
        *("pause", "resume", "seek", "replay", "discard", "reload")
    }
    assert all(log["by"].endswith("127.0.0.1") for log in done)
