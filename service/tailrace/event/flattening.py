"""Documents whose fields become fields of the documents around them, on their BSON."""

from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.event.bson import DOCUMENT, EMPTY_DOCUMENT, walk
from tailrace.event.raw_fields import RawField, document_of, require_one_of_each


@dataclass(frozen=True, slots=True)
class Flattening:
    """Flattens ``depth`` times (``None``: as often as there are documents in documents). The
    ``separator`` stands between the names."""

    depth: int | None = None
    separator: str = "_"

    def of_document(self, raw: bytes) -> bytes:
        """The document, flattened. Raises ``ValueError`` for fields that would get one name."""
        made = list(_flat(raw, 0, b"", self.separator.encode(), self.depth))
        require_one_of_each([name for _, name, _ in made], "flatten")
        return document_of(made)


def _flat(
    raw: bytes, start: int, prefix: bytes, separator: bytes, depth: int | None
) -> Iterator[RawField]:
    for name, kind, at, end in walk(raw, start):
        is_flat = kind != DOCUMENT or depth == 0 or end - at == EMPTY_DOCUMENT
        if is_flat or (not prefix and name == b"_id"):
            yield kind, prefix + name, raw[at:end]
        else:
            below = None if depth is None else depth - 1
            yield from _flat(raw, at, prefix + name + separator, separator, below)
