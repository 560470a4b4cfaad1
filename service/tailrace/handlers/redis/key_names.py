"""The names of keys: which belong to a collection, to a scope, and to what a snapshot lists."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.errors import ConfigurationError, Problem
from tailrace.event import Namespace
from tailrace.handlers.redis import RedisHandlerSettings
from tailrace.model import Scope

Owns = Callable[[bytes], bool]
_TAIL = b'{"'
"""A document key as Extended JSON begins with this, and no prefix holds it."""
_GLOB = re.compile(r"([*?\[\]\\^])")


@dataclass(frozen=True, slots=True)
class Listed:
    """The keys with these prefixes; with ``others``, those that match it and have none of them."""

    prefixes: Collection[str]
    others: re.Pattern[str] | None = None
    kept: Collection[str] = ()

    def owns(self, key: bytes) -> bool:
        """Whether it is one of these keys."""
        begin, brace, rest = key.partition(_TAIL)
        if not brace or not rest.endswith(b"}") or b'_id":' not in rest:
            return False
        prefix = begin.decode(errors="replace")
        if prefix in self.prefixes:
            return True
        return (
            self.others is not None
            and prefix not in self.kept
            and self.others.fullmatch(prefix) is not None
        )


class KeyNames:
    """The names of the keys of handler ``name``.

    Raises :class:`ConfigurationError` if collections of a scope would share their keys.
    """

    def __init__(self, name: str, settings: RedisHandlerSettings, follows: Sequence[Scope]) -> None:
        self._name = name
        self._settings = settings
        self._template = settings.prefix
        self._scopes = {scope.name: scope for scope in follows}
        for scope in follows:
            needed = {"collection": scope.collection, "database": scope.database}
            missing = [
                f"{{{each}}}"
                for each, fixed in needed.items()
                if fixed is None and f"{{{each}}}" not in self._template.text
            ]
            if missing:
                told = f"needs {' and '.join(missing)}: the scope {scope.name!r} follows several"
                raise ConfigurationError(Problem(f"handlers.{name}.key", told))

    def noted(self, scope: str) -> str:
        """The set of the keys that a snapshot of a scope has not named yet."""
        return self._settings.own_key("unnamed", self._name, scope)

    def prefix(self, database: str, collection: str, scope: str) -> str:
        """What the keys of a collection begin with."""
        return self._template.name(database, collection, scope=scope)

    def pattern(self, prefix: str) -> str:
        """The pattern for SCAN of the keys with a prefix."""
        return _GLOB.sub(r"\\\1", prefix) + '{"*'

    def pattern_of(self, scope: str) -> str:
        """The pattern for SCAN of all keys of a scope."""
        follows = self._scopes.get(scope, Scope(scope))
        database, collection = (
            "*" if each is None else _GLOB.sub(r"\\\1", each)
            for each in (follows.database, follows.collection)
        )
        parts = re.split(r"(\{\w+\})", self._template.text)
        escaped = "".join(
            each if each.startswith("{") else _GLOB.sub(r"\\\1", each) for each in parts
        )
        return (
            escaped.format(database=database, collection=collection, scope=scope, prefix="") + '{"*'
        )

    def all_of(self, scope: str) -> Listed:
        """All keys of a scope."""
        return Listed((), self._expression(scope))

    def swept(self, scope: str, told: Mapping[str, Any]) -> Listed:
        """The keys whose documents a ``snapshotEnd`` would have named: ``told`` is its
        ``snapshot``. See docs/snapshots.md."""
        done: set[str] = set()
        kept: set[str] = set()
        for each in told.get("collections", ()):
            prefix = self.prefix(each["db"], each["coll"], scope)
            (done if each.get("state") == "done" else kept).add(prefix)
        whole = told.get("chosen") == []
        return Listed(done, self._expression(scope) if whole else None, kept - done)

    def follows(self, scope: str, ns: Namespace) -> bool:
        """Whether a scope follows a collection."""
        return self._scopes.get(scope, Scope(scope)).covers(ns.db, ns.coll)

    def _expression(self, scope: str) -> re.Pattern[str]:
        follows = self._scopes.get(scope, Scope(scope))
        names = {
            "{database}": follows.database,
            "{collection}": follows.collection,
            "{scope}": scope,
        }
        found = [
            (".*" if names[each] is None else re.escape(str(names[each])))
            if each in names
            else re.escape(each)
            for each in re.split(r"(\{\w+\})", self._template.text)
        ]
        return re.compile("".join(found), re.DOTALL)
