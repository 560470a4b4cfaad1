"""Pages compressed with zstd, by few compressors for all files."""

from __future__ import annotations

from zstandard import ZstdCompressor

_LEVEL = 1


class Compression:
    """Any number of threads may use it; it has as many compressors as ever worked at once.

    For one that has seen a large page has 1.4 MB of memory, and files that wait for more are many.
    """

    def __init__(self) -> None:
        self._idle: list[ZstdCompressor] = []

    def compress(self, data: bytes) -> bytes:
        """One frame with a checksum of what it holds, and how many bytes that is.

        So a damaged page is an error to every reader, and there are readers that ask for the size.
        """
        try:
            compressor = self._idle.pop()
        except IndexError:
            compressor = ZstdCompressor(level=_LEVEL, write_checksum=True)
        compressed = compressor.compress(data)
        self._idle.append(compressor)
        return compressed
