"""Documents whose fields become fields of the documents around them, on their BSON."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tailrace.event.bson import DOCUMENT, EMPTY_DOCUMENT, walk
from tailrace.event.raw_fields import RawField, document_of, two_of

_MOST_BYTES = 2**26
"""Each field gets the names of all documents around it: of a document of 1 MB, 1 GB may become."""
_SMALL = 2**14
"""A document of fewer bytes cannot become so large, as a field has at least 2 of its own."""


@dataclass(frozen=True, slots=True)
class Flattening:
    """Flattens ``depth`` times (``None``: as often as there are documents in documents). The
    ``separator`` stands between the names."""

    depth: int | None = None
    separator: str = "_"

    def of_document(self, raw: bytes) -> bytes:
        """The document, flattened. Raises ``ValueError`` for fields that would get one name, and
        for a document of more than 64 MiB."""
        fields = _flat(raw, 0, b"", self.separator.encode(), self.depth)
        made = list(fields if len(raw) < _SMALL else _limited(fields))
        if len({name for _, name, _ in made}) < len(made):
            self._require_repeated(raw, made)
        return document_of(made)

    def _require_repeated(self, raw: bytes, made: Sequence[RawField]) -> None:
        """Raises ``ValueError`` for a name of fields at two paths. The document may have a field
        twice."""
        paths = dict[bytes, bytes]()
        exact = _flat(raw, 0, b"", b"\0", self.depth)
        for (_, name, _), (_, path, _) in zip(made, exact, strict=True):
            if paths.setdefault(name, path) != path:
                raise two_of("flatten", name)


def _limited(fields: Iterator[RawField]) -> Iterator[RawField]:
    size = 0
    for field in fields:
        size += len(field[1]) + len(field[2])
        if size > _MOST_BYTES:
            raise ValueError(f"flatten makes a document of more than {_MOST_BYTES} bytes")
        yield field


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
