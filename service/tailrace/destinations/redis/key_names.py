"""The names of keys: which belong to a collection, to a scope, and to what a snapshot lists."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from tailrace.destination import SnapshotBarrier
from tailrace.destinations.redis import RedisHandlerSettings
from tailrace.errors import ConfigurationError, Problem
from tailrace.event.document_key import identities, identity
from tailrace.event.document_tree import to_bson, tree_of
from tailrace.model import Scope

Owns = Callable[[bytes], bool]
_TAIL = b'{"'
"""A document key as Extended JSON begins with this, and no prefix holds it."""
_GLOB = re.compile(r"([*?\[\]\\^])")


@dataclass(frozen=True, slots=True)
class ListedKeys:
    """The keys with these prefixes; with ``others``, also those that match it and are not ``kept``.

    Not, by prefix, the keys of documents with an ``_id`` (as BSON elements) among ``held``.
    """

    prefixes: Collection[str]
    others: re.Pattern[str] | None = None
    kept: Collection[str] = ()
    held: Mapping[str, Collection[bytes]] = field(default_factory=dict)

    def owns(self, key: bytes) -> bool:
        """Whether it is one of these keys."""
        begin, brace, rest = key.partition(_TAIL)
        if not brace or not rest.endswith(b"}") or b'_id":' not in rest:
            return False
        prefix = begin.decode(errors="replace")
        if prefix in self.held and _identity(brace + rest) in self.held[prefix]:
            return False
        return prefix in self.prefixes or (
            self.others is not None
            and prefix not in self.kept
            and self.others.fullmatch(prefix) is not None
        )


def _identity(document_key: bytes) -> bytes:
    """The element ``_id`` of a document key that is canonical Extended JSON."""
    return identity(to_bson(tree_of(document_key.decode())), 0)


class KeyNames:
    """The names of the keys of handler ``name`` and one scope.

    Raises :class:`ConfigurationError` if collections of the scope would share their keys.
    """

    def __init__(self, name: str, settings: RedisHandlerSettings, scope: Scope) -> None:
        self._template = settings.prefix
        self._scope = scope
        self.noted = settings.own_key("unnamed", name, scope.name)
        """The set of the keys that a snapshot has not named yet."""
        needed = {"collection": scope.collection, "database": scope.database}
        missing = [
            f"{{{placeholder}}}"
            for placeholder, fixed in needed.items()
            if fixed is None and f"{{{placeholder}}}" not in self._template.text
        ]
        if missing:
            message = f"needs {' and '.join(missing)}: the scope {scope.name!r} follows several"
            raise ConfigurationError(Problem(f"handlers.{name}.key", message))

    def prefix(self, database: str, collection: str) -> str:
        """What the keys of a collection begin with."""
        return self._template.name(database, collection, scope=self._scope.name)

    def pattern(self, prefix: str) -> str:
        """The pattern for SCAN of the keys with a prefix."""
        return _GLOB.sub(r"\\\1", prefix) + '{"*'

    def pattern_of_all(self) -> str:
        """The pattern for SCAN of all keys of the scope."""
        scope = self._scope
        database, collection = (
            "*" if name is None else _GLOB.sub(r"\\\1", name)
            for name in (scope.database, scope.collection)
        )
        parts = re.split(r"(\{\w+\})", self._template.text)
        escaped = "".join(
            name if name.startswith("{") else _GLOB.sub(r"\\\1", name) for name in parts
        )
        return (
            escaped.format(database=database, collection=collection, scope=scope.name, prefix="")
            + '{"*'
        )

    def all(self) -> ListedKeys:
        """All keys of the scope."""
        return ListedKeys((), self._expression())

    def swept(
        self, snapshot: SnapshotBarrier, dead_letter_keys: Collection[bytes | None] = ()
    ) -> ListedKeys:
        """The keys whose documents would have been named before this ``snapshotEnd``.

        Rows of documents with dead letters did not come: their keys stay.
        """
        prefixes = {
            self.prefix(source.db, source.coll or ""): snapshot.is_complete(source)
            for source in snapshot.states
        }
        done = [prefix for prefix, complete in prefixes.items() if complete]
        others = not (snapshot.filtered or snapshot.chosen)
        expression = self._expression() if others else None
        held = {
            self.prefix(source.db, source.coll or ""): of_it
            for source, of_it in identities(dead_letter_keys).items()
        }
        return ListedKeys(done, expression, [*prefixes], held)

    def _expression(self) -> re.Pattern[str]:
        names = {
            "{database}": self._scope.database,
            "{collection}": self._scope.collection,
            "{scope}": self._scope.name,
        }
        parts = [
            (".*" if names[part] is None else re.escape(str(names[part])))
            if part in names
            else re.escape(part)
            for part in re.split(r"(\{\w+\})", self._template.text)
        ]
        return re.compile("".join(parts), re.DOTALL)
