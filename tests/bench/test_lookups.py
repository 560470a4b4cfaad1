"""The benchmark of look-ups measures what it says: each update is read, once."""

from pathlib import Path

import pytest

from tests.bench import lookups
from tests.mongod import ReplicaSet


@pytest.mark.integration
def test_each_way_reads_every_update(tmp_path: Path) -> None:
    """A client that has handled another number of events than were written is an error."""
    server = ReplicaSet(tmp_path)
    try:
        results = {
            "costs": lookups.costs(server, 1, 300),
            "delays": lookups.delays(server, 1, 20),
        }
    finally:
        server.stop()
    for work in lookups.WORKLOADS:
        rows = results["costs"][work.label]
        assert [row["name"] for row in rows] == [each.name for each in lookups.ALL]
        assert all(row["client_us"] > 0 and row["server_us"] > 0 for row in rows)
    assert all(row["p50_ms"] > 0 for row in results["delays"])
    assert lookups.OURS.label in lookups.text(results)
    hopeless = [
        {**row, "p50_ms": 1e6 if row["name"] == "lookup" else 1.0} for row in results["delays"]
    ]
    assert lookups.misses({**results, "delays": hopeless})
