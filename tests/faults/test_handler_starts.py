"""A handler's destination that is down when the service starts."""

import time

import pytest

from tests.daemon import until
from tests.orders import Orders

SOURCE = """
from pathlib import Path

class Table:
    async def __aenter__(self):
        if not Path("up").exists():
            raise ConnectionRefusedError("nobody listens")
        return self

    async def __aexit__(self, *error):
        pass

    async def write(self, batch):
        with open("table.txt", "a") as file:
            file.writelines(f"{each.document_key['_id']}\\n" for each in batch)
"""
HANDLERS = {
    "table": {"type": "python", "target": "mine:Table"},
    "audit": {"type": "jsonl", "path": "events.jsonl"},
}
MOST_SECONDS = 15.0
"""How long a destination may be back before it is used, by docs/handlers.md."""


@pytest.mark.parametrize("returns", [True, False])
def test_the_service_starts_and_waits_for_one_handler_while_the_other_goes_on(
    orders: Orders, returns: bool
) -> None:
    routes = [{"scope": "orders", "handlers": [*HANDLERS]}]
    run = orders.daemon(source=SOURCE, handlers=HANDLERS, routes=routes).start()
    until(lambda: run.status()["state"] == "waiting", "the state waiting, without an event")
    orders.insert(*range(20))
    run.until_events(20)
    assert run.status()["state"] == "waiting"
    status, answer = run.get("/readyz")
    assert status == 200
    assert "destination of handler 'table'" in answer
    assert "Table is not open: ConnectionRefusedError: nobody listens" in answer
    assert run.get("/livez")[0] == 200
    assert run.metric("tailrace_destination_up", scope="orders", handler="table") == 0
    if returns:
        (run.directory / "up").touch()
        began = time.monotonic()
        until(lambda: (run.directory / "table.txt").exists(), "the first call")
        assert time.monotonic() - began < MOST_SECONDS + 2
        until(lambda: len((run.directory / "table.txt").read_text().split()) == 20, "all events")
        until(lambda: run.status()["state"] == "caught_up", "the end of the wait")
    assert run.stop() == 0
    assert not run.logged("event.dead_lettered")
