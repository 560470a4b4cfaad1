"""What is hashed or masked for a handler is nowhere in what leaves the process for it."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.daemon import until
from tests.machine import free_port
from tests.orders import Orders
from tests.otlp import Collector, collecting

SOURCE = """
import json
import sqlite3
from contextlib import closing
from pathlib import Path

async def handle(event):
    if event.full_document is None:
        return
    with open("handled", "a") as file:
        print(json.dumps(event.full_document), file=file)
    if Path("poison").exists():
        raise ValueError(f"refused {event.document}")
"""
SECRETS = ["ann@example.org", "123-45-6789", "4111222233334444"]
FIELDS = {
    "hash_key": {"file": "hash.key"},
    "hash": ["_id", "ssn"],
    "mask": {"cards.number": {"keep_last": 4}},
    "set": {"region": "eu"},
}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.mark.parametrize("driver", ["motor", "pymongo"])
def test_plain_values_are_in_no_file_answer_or_log(
    orders: Orders, collector: Collector, driver: str
) -> None:
    """Also not in dead letters, errors, spans and the answers of ``why``. The letters' replay hands
    over what the handler got before."""
    run = orders.daemon(
        driver=driver,
        scope={"full_document": "lookup", "snapshot": "initial"},
        source=SOURCE,
        handlers={
            "mine": {"type": "python", "target": "mine:handle", "fields": FIELDS},
            "lines": {"type": "jsonl", "path": "lines.jsonl", "fields": FIELDS},
        },
        routes=[{"scope": "orders", "handlers": ["mine", "lines"]}],
        delivery={"retry": {"attempts": 2, "first_seconds": 0.01, "cap_seconds": 0.02}},
        http={"port": free_port()},
        telemetry={"endpoint": collector.url},
    )
    (run.directory / "hash.key").write_text("the key of the hashes\n")
    poison = run.directory / "poison"
    poison.touch()
    with orders.server.client() as client:
        collection = client[orders.database].orders
        email, ssn, card = SECRETS
        collection.insert_one({"_id": email, "ssn": ssn, "cards": [{"number": card}], "n": 1})
        run.start()
        until(lambda: len(run.letters()) == 1, "the row of the snapshot")
        collection.update_one({"_id": email}, {"$set": {"cards.0.number": card, "n": 2}})
        until(lambda: len(run.letters()) == 2, "the dead letters")
        until(lambda: len(run.events("lines.jsonl")) == 4, "the lines")
    said = [run.command("dead-letters", "list"), run.log]
    said += [run.command("dead-letters", "show", each["id"]) for each in run.letters()]
    said += [run.get(path)[1] for path in ("/", "/status", "/metrics", "/dead-letters", "/history")]
    why = run.command("why", "--scope", "orders", "--key", json.dumps(email))
    before = (run.directory / "handled").read_text().splitlines()
    poison.unlink()
    assert json.loads(run.command("dead-letters", "replay", "--json"))["done"] == 2
    after = (run.directory / "handled").read_text().splitlines()[len(before) :]
    assert run.stop() == 0
    assert collector.spans("process mine")
    said += [repr(body) for body in collector.bodies]
    first, second = map(json.loads, after)
    assert after[0] == before[0]
    assert first == {**second, "n": 1}
    assert (second["cards"], second["region"]) == ([{"number": "***4444"}], "eu")
    for secret in [*SECRETS, "the key of the hashes"]:
        files = {path.name for path in run.directory.rglob("*") if secret in text_of(path)}
        if secret == email:  # the position in a snapshot
            files -= {"tailrace.db", "tailrace.db-wal"}
        assert files == ({"hash.key"} if "key" in secret else set())
        assert not any(secret in text for text in said)
        assert secret == email or secret not in why  # it was asked with the key
    with closing(sqlite3.connect(next(run.directory.rglob("tailrace.db")))) as store:
        letters = str(store.execute("SELECT * FROM dead_letters").fetchall())
    assert not any(secret in letters for secret in SECRETS)


def text_of(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace") if path.is_file() else ""
