"""Documents whose fields become fields of the documents around them, on their BSON."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tailrace.event.bson import DOCUMENT, EMPTY_DOCUMENT, walk
from tailrace.event.raw_fields import RawField, document_of, two_of


@dataclass(frozen=True, slots=True)
class Flattening:
    """Flattens ``depth`` times (``None``: as often as there are documents in documents). The
    ``separator`` stands between the names."""

    depth: int | None = None
    separator: str = "_"

    def of_document(self, raw: bytes) -> bytes:
        """The document, flattened. Raises ``ValueError`` for fields that would get one name."""
        made = list(_flat(raw, 0, b"", self.separator.encode(), self.depth))
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
