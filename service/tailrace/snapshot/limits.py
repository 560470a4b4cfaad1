"""How much a chunk of each range may scan, so that changes never wait for it longer than a second.

A filter may be slow, or match little; a collection may be slow to read. So the number of documents
follows from how long the last chunks of the same range took.
"""

from dataclasses import dataclass

CHUNK_MS = 800
"""The server may spend this many ms on a chunk. The stream's next events wait meanwhile."""
_MOST_MS = 20_000
"""The same for a single document that takes longer: less cannot be read."""
_USUAL_SECONDS = 0.25
"""The next chunk is smaller after one that took longer."""
_FEWER = 4
"""After a chunk that the server gave up, the next one is this many times smaller."""


@dataclass(frozen=True, slots=True)
class ChunkLimit:
    """The most documents that a chunk scans, and the most ms that the server spends on it."""

    documents: int
    ms: int = CHUNK_MS


class ChunkLimits:
    """The limits of the ranges, by name. A range whose chunks are quick has none of its own."""

    def __init__(self) -> None:
        self._limits: dict[str, ChunkLimit] = {}

    def of(self, name: str, most: int) -> ChunkLimit:
        """The limit of the range's next chunk, which is to have at most ``most`` documents."""
        limit = self._limits.get(name)
        if limit is None:
            return ChunkLimit(most)
        return ChunkLimit(min(limit.documents, most), limit.ms)

    def note(self, name: str, scanned: int, seconds: float) -> None:
        """Adapts to a chunk that was read: fewer documents if it was slow, more if it was quick."""
        limit = self._limits.get(name)
        if seconds > _USUAL_SECONDS:
            documents = max(int(scanned * _USUAL_SECONDS / seconds), 1)
            slow = limit is not None and documents == 1 and seconds * 1000 > CHUNK_MS
            ms = limit.ms if limit is not None and slow else CHUNK_MS
            self._limits[name] = ChunkLimit(documents, ms)
        elif limit is not None and scanned >= limit.documents:
            faster = 2 if seconds < _USUAL_SECONDS / 2 else 1
            self._limits[name] = ChunkLimit(faster * limit.documents)

    def too_slow(self, name: str, tried: ChunkLimit) -> None:
        """Adapts to a chunk that the server gave up: fewer documents, or more time for one."""
        if tried.documents > 1:
            self._limits[name] = ChunkLimit(max(tried.documents // _FEWER, 1))
        else:
            self._limits[name] = ChunkLimit(1, min(2 * tried.ms, _MOST_MS))
