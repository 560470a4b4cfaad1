"""What outlives the process: checkpoints, gaps, dead letters and leases, together in one store.

``sqlite``, ``mongodb`` and ``memory`` each have a function ``open_store`` that yields a
:class:`Store`; one contract suite for each of its three parts holds them to the same behaviour.
"""

from dataclasses import dataclass

from tailrace.engine.ports import CheckpointStore, DeadLetterStore
from tailrace.replicas.ports import LeaseStore


@dataclass(frozen=True, slots=True)
class Store:
    """An open store."""

    checkpoints: CheckpointStore
    dead_letters: DeadLetterStore
    leases: LeaseStore
