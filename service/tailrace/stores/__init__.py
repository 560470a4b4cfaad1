"""What outlives the process: checkpoints, gaps and dead letters, together in one store.

``sqlite``, ``mongodb`` and ``memory`` each have a function ``open_store`` that yields a
:class:`Store`; one contract suite for each of its two parts holds them to the same behaviour.
"""

from dataclasses import dataclass

from tailrace.engine.ports import CheckpointStore, DeadLetterStore


@dataclass(frozen=True, slots=True)
class Store:
    """An open store."""

    checkpoints: CheckpointStore
    dead_letters: DeadLetterStore
