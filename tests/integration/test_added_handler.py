"""A handler that is added to a scope later begins by itself, and the others do not notice."""

from typing import Any

from tests.daemon import Daemon, until
from tests.orders import Orders
from tests.reloads import post


def operations(run: Daemon, name: str) -> list[tuple[str, Any]]:
    """The changes and rows that a handler has got: operation and ``_id``."""
    return [
        (event["operationType"], event["documentKey"]["_id"])
        for event in run.events(name)
        if "documentKey" in event
    ]


def test_a_handler_that_is_added_later_gets_the_documents_that_exist_alone(orders: Orders) -> None:
    """It joins the shared stream; taken out and put in again, it continues at its position."""
    handlers = {"old": {"type": "jsonl", "path": "old"}, "new": {"type": "jsonl", "path": "new"}}
    late = {"scope": "orders", "handlers": ["new"], "snapshot": "initial"}
    orders.insert(1)
    run = orders.daemon(
        handlers=handlers, routes=[{"scope": "orders", "handlers": ["old"]}]
    ).start()
    orders.insert(2, 3)
    run.until_events(2, "old")

    run.configuration["routes"].append(late)
    run.configured()
    assert post(run, {})[1]["scopes"]["orders"] == {"effect": "restarted", "because": ["routes"]}
    rows = [("read", number) for number in (1, 2, 3)]
    until(lambda: len(operations(run, "new")) == 3, "the documents")
    orders.insert(4)
    until(lambda: run.logged("subscription.attached"), "the handler on the shared stream")
    orders.insert(5)
    until(lambda: ("insert", 5) in operations(run, "new"), "the next change")
    until(lambda: ("insert", 5) in operations(run, "old"), "the next change")
    assert operations(run, "new") == [*rows, ("insert", 4), ("insert", 5)]
    until(lambda: len(orders.server.streams(orders.database)) == 1, "a single stream")

    run.configuration["routes"].remove(late)
    run.configured()
    assert post(run, {})[0] == 202
    orders.insert(6)
    until(lambda: ("insert", 6) in operations(run, "old"), "the change that only one gets")
    run.configuration["routes"].append(late)
    run.configured()
    assert post(run, {})[0] == 202
    orders.insert(7)
    until(lambda: ("insert", 7) in operations(run, "new"), "the change after its absence")
    later = [("insert", number) for number in (4, 5, 6, 7)]
    assert operations(run, "new") == [*rows, *later]
    until(lambda: len(orders.server.streams(orders.database)) == 1, "a single stream")
    assert run.stop() == 0, run.log
    assert operations(run, "old") == [("insert", number) for number in (2, 3, 4, 5, 6, 7)]
