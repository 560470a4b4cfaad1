"""What outlives the process: checkpoints, gaps and dead letters, together in one store.

One module for each kind of store (``sqlite``, ``mongodb``, ``memory``), each with a function
``open_store`` that yields a :class:`Store`. Its two parts fulfil the ports of
:mod:`tailrace.engine.ports`, and pass one contract suite each, whatever is below them.
"""

from dataclasses import dataclass

from tailrace.engine.ports import CheckpointStore, DeadLetterStore


@dataclass(frozen=True, slots=True)
class Store:
    """An open store: two ports to one place."""

    checkpoints: CheckpointStore
    dead_letters: DeadLetterStore
