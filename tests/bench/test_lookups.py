"""The benchmark of look-ups measures what it claims: each update is read once."""

from pathlib import Path

import pytest

from tests.bench import lookups
from tests.mongod import ReplicaSet


@pytest.mark.integration
def test_each_way_reads_every_update(tmp_path: Path) -> None:
    """A client that handles a different number of events than were written causes an error."""
    chosen = lookups.WORKLOADS[1:]  # the first one is the second in smaller replies
    server = ReplicaSet(tmp_path)
    try:
        costs = lookups.costs(server, 1, 1000, chosen)
        delays = lookups.delays(server, 1, 20)
    finally:
        server.stop()
    for work in chosen:
        rows = costs[work.label]
        assert [row["name"] for row in rows] == [each.name for each in lookups.ALL]
        assert all(row["client_us"] > 0 and row["server_us"] > 0 for row in rows)
    assert all(row["p50_ms"] > 0 for row in delays)
    assert lookups.text(costs).count(lookups.OURS.label) >= len(costs)
    assert lookups.misses(costs, [{"p50_ms": 1.0}, {"p50_ms": 9.0}])
