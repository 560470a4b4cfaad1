"""Which handlers want which events of a scope."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Route:
    """Routes events of ``scope`` with these operations, in these namespaces, to ``handlers``.

    Empty ``operations`` or ``namespaces`` mean all. A namespace is ``database.collection``, with
    ``*`` for any part of it, as in ``shop.*``.
    """

    scope: str
    handlers: tuple[str, ...]
    operations: frozenset[str] = frozenset()
    namespaces: tuple[str, ...] = ()
