"""The contract that any package can run on its destination, on the real servers of ours."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from bson import json_util

from tailrace.testing import DestinationContract
from tests.destinations.destination import NAMES, Destination
from tests.guards import HANGS_SECONDS

SWEEPING = ("postgresql", "mongodb", "redis")
"""Those that keep the last state of each document, and know themselves what is gone."""
COMPARED = (*SWEEPING, "kafka", "kafka_once")
"""Those that ``tailrace verify`` can ask."""
REFUSING = [name for name in NAMES if name != "redis"]
SECRET = "c3dvcmRmaXNo"
SECRETS = {
    "postgresql": {"dsn": f"postgresql://me:{SECRET}@localhost/shop"},
    "mongodb": {"uri": f"mongodb://me:{SECRET}@localhost/"},
    "redis": {"url": f"redis://me:{SECRET}@localhost/0"},
    "nats": {"token": SECRET},
    "http": {"secret": f"whsec_{SECRET}"},
    "kafka": {"password": SECRET},
}


@pytest.mark.usefixtures("abandoned_connects")
class TestContract(DestinationContract):
    seconds = HANGS_SECONDS

    @pytest.fixture(autouse=True)
    def _this(self, kind: str, destination: Destination) -> None:
        self.destination = destination
        self.handler = {"batch_size": 7, **destination.handler}
        self.once, self.refused = destination.once, destination.refused
        self.drops = self.sweeps = kind in SWEEPING

    def holds(self) -> Mapping[Any, Mapping[str, Any]]:
        found = self.destination.documents("shop", "orders")
        return {json_util.loads(key)["_id"]: document for key, document in found.items()}

    def document(self, number: int, version: int) -> Mapping[str, Any]:
        return {"_id": number, "version": version, "text": "ä\n😀", "list": [1, {"a": None}]}

    @contextmanager
    def down(self) -> Iterator[None]:
        self.destination.stop()
        try:
            yield
        finally:
            self.destination.start()

    @contextmanager
    def expired(self) -> Iterator[None]:
        self.destination.expire()
        try:
            yield
        finally:
            self.destination.renew()

    # What is not every destination's.

    @pytest.mark.parametrize("kind", SWEEPING, scope="session")
    def test_it_holds_what_the_source_has_after_every_fault(self) -> None:
        super().test_it_holds_what_the_source_has_after_every_fault()

    @pytest.mark.parametrize("kind", REFUSING, scope="session")
    def test_a_refused_document_is_set_aside_and_the_others_arrive(self) -> None:
        super().test_a_refused_document_is_set_aside_and_the_others_arrive()

    # That of nats needs another configuration: test_nats.py.
    @pytest.mark.parametrize("kind", [name for name in NAMES if name != "nats"], scope="session")
    def test_refused_credentials_are_an_outage_that_new_ones_end(self) -> None:
        super().test_refused_credentials_are_an_outage_that_new_ones_end()

    @pytest.mark.parametrize("kind", SWEEPING, scope="session")
    def test_a_snapshot_removes_what_is_gone_and_nothing_else(self) -> None:
        super().test_a_snapshot_removes_what_is_gone_and_nothing_else()

    @pytest.mark.parametrize("kind", COMPARED, scope="session")
    def test_a_comparison_tells_the_same_rows_from_others(self) -> None:
        super().test_a_comparison_tells_the_same_rows_from_others()

    @pytest.mark.parametrize("kind", SECRETS, scope="session")
    def test_a_secret_is_shown_nowhere(self, kind: str) -> None:
        self.handler, self.secret = {**self.handler, **SECRETS[kind]}, SECRET
        super().test_a_secret_is_shown_nowhere()


# Not Kafka's, whose every start takes a second of a core: test_contract_kills.py has those.
@pytest.mark.usefixtures("abandoned_connects")
@pytest.mark.parametrize(
    "kind", ["postgresql", "mongodb", "redis", "nats", "http"], scope="session"
)
def test_each_message_comes_once_or_in_order_after_every_fault(kind: str, log: Destination) -> None:
    """As :class:`TestContract`, for the form that keeps each message: by their ids."""

    class Contract(DestinationContract):
        once = log.once

        def holds(self) -> list[Any]:
            return [sent.id for sent in log.sent() or ()]

    contract = Contract()
    contract.handler = {"batch_size": 7, **log.handler}
    contract.test_it_holds_what_the_source_has_after_every_fault()
