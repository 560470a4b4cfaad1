"""How large a snapshot's chunks are, and how quickly they follow one another."""

from dataclasses import dataclass, field

import anyio

CHUNK_BYTES = 4 * 1024 * 1024
"""Of a usual chunk, so that the stream never waits for it for long."""
_FIRST_DOCUMENTS = 100
"""Of the first chunk: how large documents are is not known yet."""
_BRIEF_DOCUMENTS = 300
"""Of a chunk beside changes, which wait while it is read."""
_BRIEF_REST = 7.0
"""It is followed by a rest of so many times its own time, in which changes do not wait."""
_SLOW = 2.0
"""A chunk that takes so many times what one usually takes is followed by a rest."""
_WEIGHT = 0.1
"""Of the last chunk in what is usual."""


@dataclass
class Pace:
    """At most so many ``most_documents`` a chunk, and ``per_second`` (0: no limit)."""

    most_documents: int
    per_second: float = 0.0
    documents: int = field(init=False)
    """How many a chunk has, as far as their size is known."""
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
        """Nothing is read for so long."""
        self._not_before = max(self._not_before, anyio.current_time() + seconds)

    def size(self, *, briefly: bool) -> int:
        """How many documents the next chunk is to have; few where changes would wait for it."""
        return min(self.documents, _BRIEF_DOCUMENTS) if briefly else self.documents

    def note(self, documents: int, size: int, seconds: float, *, briefly: bool = False) -> None:
        """A chunk of so many documents and bytes was read, in so many seconds."""
        now = anyio.current_time()
        if self.per_second:
            begun = max(self._not_before, now - seconds)
            self._not_before = begun + documents / self.per_second
        if briefly:
            self.rest(_BRIEF_REST * seconds)
        if not documents or briefly:
            return
        each = size / documents
        fitting = int(CHUNK_BYTES / each) if each else self.most_documents
        self.documents = max(1, min(self.most_documents, fitting, 4 * self.documents))
        cost = seconds / documents
        if self._usual and cost > _SLOW * self._usual:
            self.rest(seconds)
        self._usual = cost if not self._usual else self._usual + _WEIGHT * (cost - self._usual)
