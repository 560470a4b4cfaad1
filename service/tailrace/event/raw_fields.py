"""Fields of BSON documents, from which others are made."""

from collections.abc import Sequence

from tailrace.event.bson import encoded

RawField = tuple[int, bytes, bytes]
"""The type, the name and the value of a field."""


def element(kind: int, name: bytes, value: bytes) -> bytes:
    return b"%c%b\0%b" % (kind, name, value)


def document_of(fields: Sequence[RawField]) -> bytes:
    """The document with these fields."""
    return encoded(b"".join([element(*each) for each in fields]))


def array_of(values: Sequence[tuple[int, bytes]]) -> bytes:
    """The array of these types and values."""
    return document_of([(kind, b"%d" % at, value) for at, (kind, value) in enumerate(values)])


def names_of(path: str) -> Sequence[bytes]:
    """The names of the dotted path of a rule. Raises ``ValueError`` for an array's index."""
    first, *below = path.encode().split(b".")
    if any(name.isdigit() for name in below):
        raise ValueError(
            f"{path!r} has an array's index: a path reaches into every document of an array "
            "without one"
        )
    return first, *below


def two_of(rule: str, name: bytes) -> ValueError:
    """The error of a rule that gives a name to two fields."""
    return ValueError(f"{rule} makes two fields {name.decode(errors='replace')!r}")
