"""How large the chunks of a snapshot are, and how soon the next one may be read."""

import math
from dataclasses import dataclass, field

import anyio

CHUNK_BYTES = 4 * 1024 * 1024
"""The usual size of a chunk, small enough that the stream never waits long for it."""
_FIRST_DOCUMENTS = 100
"""The size of the first chunk, while the size of documents is unknown."""
_BRIEF_DOCUMENTS = 300
"""The most documents in a brief chunk, for which changes wait."""
_BRIEF_REST = 7.0
"""The pause after a brief chunk, in multiples of its duration. Changes do not wait meanwhile."""
_SLOW = 2.0
"""A chunk whose documents take this many times as long as usual is followed by a pause."""
_WEIGHT = 0.1
"""The weight of the last chunk in the moving average of the time per document."""


@dataclass
class ChunkPace:
    """Limits: ``most_documents`` a chunk, and documents ``per_second`` (0: no limit)."""

    most_documents: int
    per_second: float = 0.0
    longest_rest: float = math.inf
    """The longest pause after a brief chunk, in seconds."""
    documents: int = field(init=False)
    """How many documents the next chunk should have, from what is known of their size."""
    _not_before: float = 0.0
    _usual: float = 0.0

    def __post_init__(self) -> None:
        self.documents = min(self.most_documents, _FIRST_DOCUMENTS)

    async def wait(self) -> None:
        """Returns when the next chunk may be read."""
        await anyio.sleep_until(self._not_before)

    @property
    def now(self) -> bool:
        """Whether the next chunk may be read now."""
        return anyio.current_time() >= self._not_before

    def rest(self, seconds: float) -> None:
        """Allows no chunk for this long."""
        self._not_before = max(self._not_before, anyio.current_time() + seconds)

    def size(self, *, briefly: bool) -> int:
        """The number of documents for the next chunk; few if changes would wait (``briefly``)."""
        return min(self.documents, _BRIEF_DOCUMENTS) if briefly else self.documents

    def note(self, documents: int, size: int, seconds: float, *, briefly: bool = False) -> None:
        """Adapts to a chunk that was read: its documents, its size in bytes, its duration."""
        now = anyio.current_time()
        if self.per_second:
            begun = max(self._not_before, now - seconds)
            self._not_before = begun + documents / self.per_second
        if briefly:
            self.rest(min(_BRIEF_REST * seconds, self.longest_rest))
        if not documents:
            return
        document_bytes = size / documents
        fitting = int(CHUNK_BYTES / document_bytes) if document_bytes else self.most_documents
        self.documents = max(1, min(self.most_documents, fitting, 4 * self.documents))
        if briefly:
            return  # its time per document is not the usual one
        cost = seconds / documents
        if self._usual and cost > _SLOW * self._usual:
            self.rest(seconds)
        self._usual = cost if not self._usual else self._usual + _WEIGHT * (cost - self._usual)
