"""What an error of the server means for a snapshot (mongod, src/mongo/base/error_codes.yml)."""

from typing import NoReturn

from tailrace.errors import CommandFailed, ScopeHalted

NOT_THERE = frozenset({26, 361})
"""NamespaceNotFound, CollectionUUIDMismatch: the collection was renamed or dropped just now."""
UNAVAILABLE = 246
"""SnapshotUnavailable: the collection's metadata is newer than the time, or it is capped now."""
READ_LATER = frozenset({239, UNAVAILABLE})
"""SnapshotTooOld, SnapshotUnavailable: the time is too old, or the collection's metadata newer."""
TOO_SLOW = frozenset({50, 262})
"""MaxTimeMSExpired, ExceededTimeLimit."""

ACCESS = frozenset({11, 13, 18})
"""UserNotFound, Unauthorized, AuthenticationFailed: the user may come back, as in a rotation."""

_REFUSALS = frozenset(
    {
        *(2, 9, 14, 15, 168),  # BadValue, FailedToParse, TypeMismatch, Overflow, unknown operator
        *(4, 31, 52, 139, 241),  # a wrong path or field, JavaScript, a conversion
        *ACCESS,
        *(20, 59, 72, 73, 115, 166, 303),  # what the server or this kind of collection cannot do
    }
)
_PASSING = frozenset({8000, 16500, 28799})
"""Codes without a name that pass: of Atlas, of a throttled cluster, and of ``$sample``."""


def is_refusal(error: CommandFailed) -> bool:
    """Whether the server will refuse the same command again, as for a wrong filter.

    Assertions of the parser and of expressions have no name of their own, only ``Location`` and
    their code.
    """
    if error.code in _REFUSALS:
        return True
    return error.code_name.startswith("Location") and error.code not in _PASSING


def raise_refusal(scope: str, error: CommandFailed) -> NoReturn:
    """Raises the refusal of a snapshot that belongs to the scope: no restart can help, unless it
    is about access."""
    if error.code in ACCESS:
        raise error
    raise ScopeHalted(
        f"scope {scope!r}: the server refuses to read the documents of its snapshot: {error}: "
        "correct the scope's snapshot, or its route's, or set snapshot: never"
    ) from error
