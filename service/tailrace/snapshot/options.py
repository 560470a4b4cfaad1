"""How the snapshots of a scope are taken."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """How a scope's snapshots are taken.

    ``initial``: take one if the scope has no position; ``after_gap``: if its history is lost.
    ``filter`` applies to both, in canonical Extended JSON. A chunk has at most
    ``chunk_documents`` documents, and ``parallel`` chunks are read concurrently;
    ``documents_per_second`` limits the reading (0: no limit).
    """

    initial: bool = False
    after_gap: bool = False
    filter: str = ""
    chunk_documents: int = 4096
    documents_per_second: float = 0.0
    parallel: int = 1
    read_preference: str | None = None
    images: bool = False
    """Whether the scope requires images of the changes of its collections."""
