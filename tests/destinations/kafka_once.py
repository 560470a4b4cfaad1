"""Kafka with ``exactly_once`` in the contract suite."""

from contextlib import AbstractContextManager

from tests.destinations import kafka
from tests.destinations.destination import Make


def serve() -> AbstractContextManager[Make]:
    return kafka.serve(once=True)
