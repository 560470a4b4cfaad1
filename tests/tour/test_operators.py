"""Five promises to those who operate Tailrace, one test each: commands act on the running daemon.

As in ``test_promises.py``, the service is a process and the server is a real one. Two handlers
write what they get to a file each.
"""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo.collection import Collection

from tests.daemon import Daemon, until
from tests.machine import free_port

Shop = Collection[dict[str, Any]]
ONE, OTHER = "one.jsonl", "other.jsonl"


@pytest.fixture
def both(tailrace: Daemon, shop: Shop, since: str) -> Daemon:
    """The service with the handlers ``one`` and ``other``, which have had ten changes."""
    tailrace.configuration["http"]["port"] = free_port()
    tailrace.configuration["handlers"] = {
        "one": {"type": "jsonl", "path": ONE},
        "other": {"type": "jsonl", "path": OTHER},
    }
    tailrace.configuration["routes"] = [{"scope": "orders", "handlers": ["one", "other"]}]
    tailrace.start()
    shop.insert_many([{"_id": n} for n in range(10)])
    until(lambda: ids(tailrace) == ids(tailrace, OTHER) == [*range(10)], "the first changes")
    return tailrace


@pytest.fixture
def since(shop: Shop) -> str:
    """A time before the first change, which the oplog still has."""
    now = shop.database.client.admin.command("ping")["operationTime"].time
    return datetime.fromtimestamp(now, UTC).isoformat()


def ids(run: Daemon, name: str = ONE) -> list[Any]:
    return [event["documentKey"]["_id"] for event in run.events(name)]


def test_18_a_handler_is_paused_and_the_others_go_on(shop: Shop, both: Daemon) -> None:
    """After it is resumed it gets everything, once."""
    both.command("scopes", "pause", "orders", "--handler", "one")
    shop.insert_many([{"_id": n} for n in range(10, 20)])
    until(lambda: ids(both, OTHER) == [*range(20)], "the changes of the other handler")
    assert ids(both) == [*range(10)]
    both.command("scopes", "resume", "orders", "--handler", "one")
    until(lambda: ids(both) == [*range(20)], "what it has missed")


def test_19_a_seek_says_what_comes_again_and_can_be_taken_back(
    shop: Shop, both: Daemon, since: str
) -> None:
    """It moves one handler, if that is named; without ``--dry-run`` it is done at once."""
    shop.insert_one({"_id": 10})
    until(lambda: ids(both) == ids(both, OTHER) == [*range(11)], "the last change")
    back = ("scopes", "seek", "orders", "--handler", "one", "--at", since)
    assert "Dry run: nothing was changed" in both.command(*back, "--dry-run")
    assert ids(both) == [*range(11)]
    both.command(*back)
    until(lambda: ids(both) == [*range(11)] * 2, "every change once more")
    undo = both.command("scopes", "seek", "orders", "--handler", "one", "--undo", "--dry-run")
    assert "Dry run: nothing was changed" in undo
    assert ids(both, OTHER) == [*range(11)]


def test_20_a_span_of_time_is_replayed_to_one_handler(both: Daemon, since: str) -> None:
    """The scope goes on meanwhile, and the position of the handler stays."""
    replay = ("scopes", "replay", "orders", "--from", since)
    done = both.command(*replay, "--handler", "one", "--key", "7")
    assert "the replay is done: 1 change was handed over" in done
    assert (ids(both), ids(both, OTHER)) == ([*range(10), 7], [*range(10)])
    both.command(*replay, "--to-file", "span.jsonl")
    assert ids(both, "span.jsonl") == [*range(10)]


def test_21_it_says_what_became_of_a_document(shop: Shop, both: Daemon) -> None:
    """For each handler, from the source to the destination."""
    both.command("scopes", "pause", "orders", "--handler", "one")
    shop.update_one({"_id": 7}, {"$set": {"state": "paid"}})
    until(lambda: len(ids(both, OTHER)) == 11, "the change at the other handler")
    asks = ("why", "--scope", "orders", "--key", "7", "--collection", shop.full_name, "--json")
    handlers = json.loads(both.command(*asks))["changes"][0]["handlers"]
    assert handlers["other"]["state"] == "handled"
    assert handlers["one"]["state"] != "handled"


def test_22_a_reload_restarts_only_what_has_changed(shop: Shop, both: Daemon) -> None:
    """The process stays, and nothing comes twice."""
    assert both.process is not None
    process = both.process.pid
    both.configuration["handlers"]["third"] = {"type": "jsonl", "path": "third.jsonl"}
    both.configuration["routes"][0]["handlers"].append("third")
    both.configured()
    assert "third" in both.command("reload", "--dry-run")
    both.command("reload")
    shop.insert_one({"_id": 10})
    until(lambda: ids(both, "third.jsonl") == [10], "the change at the new handler")
    until(lambda: ids(both) == ids(both, OTHER) == [*range(11)], "the change at the others")
    assert both.process.pid == process
