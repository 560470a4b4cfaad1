"""Processes share the scopes and one lake: each change lands once, whoever owns the scope."""

import signal
from pathlib import Path

import bson

from tests.daemon import until
from tests.lake import rows
from tests.replicas import Replicas


def test_a_scope_that_goes_to_another_process_and_back_lands_once(
    replicas: Replicas, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    for name in ("one", "two"):
        run = replicas.daemon(name)
        run.configuration["handlers"] = {
            "lake": {"type": "parquet", "path": str(lake), "segment_seconds": 0.1}
        }
        run.configuration["routes"] = [{"scope": "orders", "handlers": ["lake"]}]
        run.start()

    def land(number: int) -> None:
        replicas.orders.insert(number)
        until(lambda: landed()[-1:] == [number], f"change {number}")

    def landed() -> list[int]:
        return [bson.decode(row["document_key"])["_id"] for row in rows(lake, "orders")]

    one, two = replicas.runs.values()
    replicas.until_owner(one)
    land(0)
    replicas.pause(one)
    replicas.until_owner(two)
    land(1)
    one.signal(signal.SIGCONT)
    until(lambda: one.status().get("state") == "standby", "that it stands by")
    two.kill()
    replicas.until_owner(one)
    land(2)
    assert landed() == [0, 1, 2]
    assert one.status()["restarts"] == 0
    replicas.stop()
