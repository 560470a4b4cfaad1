"""What outlives the process, in one store: positions, desired states, dead letters, leases
and verifications.

``sqlite``, ``mongodb`` and ``memory`` each have a function ``open_store`` that yields a
:class:`Store`. A contract suite for each of its parts checks that all behave the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.engine.ports import CheckpointStore, DeadLetterStore, DesiredStateStore
    from tailrace.replicas.ports import LeaseStore
    from tailrace.verify.ports import VerificationStore


@dataclass(frozen=True, slots=True)
class Store:
    """An open store."""

    checkpoints: CheckpointStore
    dead_letters: DeadLetterStore
    leases: LeaseStore
    desired_states: DesiredStateStore
    verifications: VerificationStore
