"""The benchmark on mongod measures what it says: each client reads exactly what was written."""

from typing import Any

import pytest

from tests.bench import contenders, real_server


@pytest.mark.integration
def test_a_workload_is_read_to_its_end() -> None:
    """A client that has handled another number of events than were written is an error."""
    found: dict[str, list[dict[str, Any]]] = {}
    images = real_server.WORKLOADS[-1]
    chosen = (contenders.PYMONGO, contenders.EVENT)
    real_server.measure(chosen, 1, 300, found.__setitem__, [images])
    (rows,) = found.values()
    assert [row["name"] for row in rows] == ["pymongo", "event"]
    assert all(row["runs"][0]["events"] == 300 for row in rows)
    assert all(row["client_us"] > 0 and row["server_us"] > 0 for row in rows)
