"""Ten promises of Tailrace, one test each. Read these first.

Each test runs the real service as a process against a real server process. The fixtures: ``shop``
is a collection on a real server that no other test uses; ``tailrace`` is the service, configured to
write its events to ``events.jsonl``.
"""

import json
from typing import Any

from pymongo.collection import Collection

from tests.daemon import Daemon, until

Shop = Collection[dict[str, Any]]


def test_01_every_change_is_delivered_in_order(shop: Shop, tailrace: Daemon) -> None:
    """Inserts, updates, replacements and deletes arrive in the order in which they happened."""
    tailrace.start()
    shop.insert_one({"_id": 1, "state": "new"})
    shop.update_one({"_id": 1}, {"$set": {"state": "paid"}})
    shop.replace_one({"_id": 1}, {"_id": 1, "state": "sent"})
    shop.delete_one({"_id": 1})
    events = tailrace.until_events(4)
    assert [event["operationType"] for event in events] == ["insert", "update", "replace", "delete"]


def test_02_an_event_arrives_exactly_as_the_server_sent_it(shop: Shop, tailrace: Daemon) -> None:
    """Types are preserved: a 64-bit integer stays one, and the resume token is kept."""
    from bson import Int64

    tailrace.start()
    shop.insert_one({"_id": 1, "small": 1, "large": Int64(1), "nothing": float("nan")})
    (event,) = tailrace.until_events(1)
    assert event["fullDocument"]["small"] == {"$numberInt": "1"}
    assert event["fullDocument"]["large"] == {"$numberLong": "1"}
    assert event["fullDocument"]["nothing"] == {"$numberDouble": "NaN"}
    assert "_data" in event["_id"]


def test_03_a_stop_drains_and_a_restart_goes_on_exactly_there(shop: Shop, tailrace: Daemon) -> None:
    """SIGTERM ends with exit code 0. After the restart nothing is repeated or missing."""
    tailrace.start()
    shop.insert_many([{"_id": number} for number in range(100)])
    tailrace.until_events(50)
    assert tailrace.stop() == 0
    shop.insert_many([{"_id": number} for number in range(100, 200)])
    tailrace.start()
    tailrace.until_events(200)
    assert tailrace.stop() == 0
    assert tailrace.ids() == list(range(200))


def test_04_a_crash_loses_nothing(shop: Shop, tailrace: Daemon) -> None:
    """After SIGKILL at any moment, changes may come twice but are never skipped."""
    tailrace.start()
    for begin in (0, 100, 200):
        shop.insert_many([{"_id": number} for number in range(begin, begin + 100)])
        tailrace.until_events(begin + 1)
        tailrace.kill()
        tailrace.start()
    until(lambda: set(tailrace.ids()) == set(range(300)), "every change")


def test_05_the_position_never_passes_an_unhandled_change(shop: Shop, tailrace: Daemon) -> None:
    """The checkpoint does not pass a change that its handler refuses; the change is retried."""
    tailrace.configuration["handlers"] = {
        "mine": {
            "type": "python",
            "target": "shy:handle",
            "retry": {"attempts": 10_000, "first_seconds": 0.05, "cap_seconds": 0.1},
        }
    }
    tailrace.configuration["routes"] = [{"scope": "orders", "handlers": ["mine"]}]
    (tailrace.directory / "shy.py").write_text(
        "import pathlib\n"
        "async def handle(event):\n"
        "    if not pathlib.Path('open').exists():\n"
        "        raise RuntimeError('the destination is closed')\n"
        "    with open('handled', 'a') as file:\n"
        "        print(event.document_key['_id'], file=file)\n"
    )
    tailrace.start()
    shop.insert_one({"_id": 1})
    until(lambda: len(tailrace.logged("handler.failed")) > 2, "some attempts")
    assert "the destination is closed" in tailrace.logged("handler.failed")[0]["error"]
    tailrace.kill()
    (tailrace.directory / "open").touch()
    tailrace.start()
    handled = tailrace.directory / "handled"
    until(lambda: handled.exists() and handled.read_text() == "1\n", "the change")


def test_06_a_dropped_collection_is_still_followed(shop: Shop, tailrace: Daemon) -> None:
    """The invalidate is delivered, and so are changes of a new collection with the name."""
    tailrace.start()
    shop.insert_one({"_id": 1})
    shop.drop()
    shop.insert_one({"_id": 2})
    until(lambda: 2 in tailrace.ids(), "the change after the drop")
    kinds = [event["operationType"] for event in tailrace.events()]
    assert kinds == ["insert", "drop", "invalidate", "insert"]


def test_07_a_quiet_collection_keeps_its_place(shop: Shop, tailrace: Daemon) -> None:
    """The position advances while nothing happens, so it never becomes too old to resume."""
    tailrace.start()
    until(lambda: tailrace.status()["checkpoint"], "the first checkpoint")
    before = tailrace.status()["checkpoint"]["sequence"]
    shop.database.client["elsewhere"].things.insert_one({})
    until(lambda: tailrace.status()["checkpoint"]["sequence"] > before, "a later checkpoint")
    assert tailrace.status()["checkpoint"]["kind"] == "idle"
    assert not tailrace.events()


def test_08_it_reports_its_state(shop: Shop, tailrace: Daemon) -> None:
    """Liveness, readiness, state and lag: over HTTP, for people and for Prometheus."""
    tailrace.start()
    shop.insert_one({"_id": 1})
    tailrace.until_events(1)
    assert tailrace.get("/livez")[0] == 200
    assert tailrace.get("/readyz")[0] == 200
    until(lambda: tailrace.status()["state"] == "caught_up", "rest")
    until(lambda: tailrace.metric("tailrace_lag_seconds", stage="committed") == 0, "no lag")
    assert tailrace.metric("tailrace_events_handled_total", handler="file", outcome="ok") == 1


def test_09_a_mistake_in_the_configuration_is_one_clear_message(tailrace: Daemon) -> None:
    """It says where the mistake is and what is allowed; exit code 2, and no traceback."""
    tailrace.configuration["scopes"][0]["batchsize"] = 10
    tailrace.start(ready=False)
    assert tailrace.wait() == 2
    assert "scopes[0].batchsize" in tailrace.log
    assert "batch_size" in tailrace.log
    assert "Traceback" not in tailrace.log


def test_10_secrets_and_documents_stay_out_of_the_log(shop: Shop, tailrace: Daemon) -> None:
    """Logs name scopes and positions, but never contents of documents or whole tokens."""
    tailrace.configuration["handlers"]["look"] = {"type": "log"}
    tailrace.configuration["routes"][0]["handlers"].append("look")
    tailrace.start()
    shop.insert_one({"_id": 1, "card": "4111-1111"})
    (event,) = tailrace.until_events(1)
    until(lambda: tailrace.logged("event.received"), "the log line")
    assert tailrace.stop() == 0
    assert "4111-1111" not in tailrace.log
    assert json.dumps(event["_id"]["_data"]) not in tailrace.log
