"""The benchmark on mongod measures what it claims: each client reads exactly what was written."""

import pytest

from tests.bench import contenders, real_server, snapshots


@pytest.mark.integration
def test_a_workload_is_read_to_its_end() -> None:
    """A client that handles a different number of events than were written causes an error."""
    images = real_server.WORKLOADS[-1]
    chosen = (contenders.PYMONGO, contenders.EVENT)
    ((_, rows),) = real_server.measure(chosen, 1, 300, [images])
    assert [row["name"] for row in rows] == ["pymongo", "event"]
    assert all(row["runs"][0]["events"] == 300 for row in rows)
    assert all(row["client_us"] > 0 and row["server_us"] > 0 for row in rows)


@pytest.mark.integration
def test_a_collection_is_copied_to_its_end() -> None:
    """A copy that hands over a different number of documents than exist causes an error."""
    found = snapshots.measure(1, 300, 0)["copies"]
    assert [row["name"] for row in found] == ["find", "copy", "parallel"]
    assert all(row["client_us"] > 0 and row["server_us"] > 0 for row in found)
