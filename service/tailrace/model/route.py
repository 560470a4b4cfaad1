"""Which handlers want which events of a scope."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Route:
    """Events of ``scope`` with one of these operations, in one of these namespaces, to handlers.

    Empty ``operations`` or ``namespaces`` mean all. A namespace is ``database.collection``, with
    ``*`` for any part of it, as in ``shop.*``.
    """

    scope: str
    handlers: tuple[str, ...]
    operations: frozenset[str] = frozenset()
    namespaces: tuple[str, ...] = ()
