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


def require_one_of_each(names: Sequence[bytes], rule: str) -> None:
    """Raises ``ValueError`` for a name that a rule gives to a field beside one that has it."""
    if len(set(names)) < len(names):
        raise two_of(rule, next(name for name in names if names.count(name) > 1))


def two_of(rule: str, name: bytes) -> ValueError:
    """The error of a rule that gives a name to two fields."""
    return ValueError(f"{rule} makes two fields {name.decode(errors='replace')!r}")
