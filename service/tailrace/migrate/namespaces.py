"""Which collections a peer follows, as a pipeline and as the namespaces of a route.

Debezium selects by regular expressions that match a whole name without regard to case. A route
selects by patterns with ``*``, and its selection also holds for the rows of a snapshot.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_PART = re.compile(
    r"\\(?P<literal>[^A-Za-z0-9])|(?P<any>\.\*)|(?P<some>\.\+)|(?P<one>\.)"
    r"|(?P<set>\[[\w.-]+\])|(?P<plain>[^\\.^$*+?()\[\]{}|])"
)
_WILD = re.compile(r"[*?\[]")
_FULL = {"$concat": ["$ns.db", ".", "$ns.coll"]}


@dataclass(frozen=True, slots=True)
class Selection:
    """The lists of a peer. With ``literal``, they are names and not regular expressions."""

    databases: Sequence[str] = ()
    no_databases: Sequence[str] = ()
    collections: Sequence[str] = ()
    no_collections: Sequence[str] = ()
    literal: bool = False

    @property
    def is_everything(self) -> bool:
        """Whether nothing is selected or left out."""
        lists = (self.databases, self.no_databases, self.collections, self.no_collections)
        return not any(lists)

    def namespaces(self) -> list[str] | None:
        """Patterns of a route that select the same; ``None`` if none do."""
        if self.no_databases or self.no_collections:
            return None
        if not self.collections:
            names = self._patterns(self.databases)
            return [f"{name}.*" for name in names] if names and "." not in "".join(names) else None
        # Every namespace has a dot: that of a pattern without one is in its "*".
        found = self._patterns(self.collections) or ()
        patterns = [text if "." in text else text.replace("*", "*.*", 1) for text in found]
        if not patterns or not all(map(_has_two_parts, patterns)):
            return None
        if self.databases:
            if any(map(_WILD.search, patterns)):
                return None
            wanted = _whole(self.databases, literal=self.literal)
            of = re.compile(wanted, re.IGNORECASE)
            patterns = [name for name in patterns if of.match(name.partition(".")[0])]
        return patterns or None

    def exact(self) -> list[str] | None:
        """The names of the collections, if they can be told."""
        names = self.namespaces()
        return None if names is None or any(map(_WILD.search, names)) else names

    def stages(self, *, ends: bool) -> list[dict[str, Any]]:
        """The pipeline. ``ends``: the stream may end with an ``invalidate``, which must pass."""
        if self.is_everything:
            return []
        if (names := self.exact()) is not None:
            parts = dict.fromkeys(name.partition(".")[2] for name in names)
            return [_match([{"ns.coll": {"$in": list(parts)}}], ends=ends)]
        tests: list[dict[str, Any]] = []
        for chosen, what in ((self.databases, "$ns.db"), (self.collections, _FULL)):
            if chosen:
                tests.append({"$expr": self._test(chosen, what)})
        for left_out, what in ((self.no_databases, "$ns.db"), (self.no_collections, _FULL)):
            if left_out:
                tests.append({"$expr": {"$not": [self._test(left_out, what)]}})
        return [_match(tests, ends=ends)]

    def _test(self, names: Sequence[str], what: Any) -> dict[str, Any]:
        if self.literal:
            return {"$in": [what, list(names)]}
        regex = _whole(names, literal=False)
        return {"$regexMatch": {"input": what, "regex": regex, "options": "i"}}

    def _patterns(self, names: Sequence[str]) -> list[str] | None:
        """Patterns with ``*`` for the names; ``None`` if one has no such form."""
        if self.literal:
            return None if any(map(_WILD.search, names)) else list(names)
        found = [_pattern(part) for name in names for part in _alternatives(name)]
        patterns = [pattern for pattern in found if pattern is not None]
        return patterns if len(patterns) == len(found) else None


def _match(tests: list[dict[str, Any]], *, ends: bool) -> dict[str, Any]:
    test: dict[str, Any] = tests[0] if len(tests) == 1 else {"$and": tests}
    return {"$match": {"$or": [{"operationType": "invalidate"}, test]} if ends else test}


def _whole(names: Sequence[str], *, literal: bool) -> str:
    return f"^(?:{'|'.join(map(re.escape, names) if literal else names)})$"


def _alternatives(regex: str) -> list[str]:
    return [regex] if set(regex) & set("()[") else regex.split("|")


def _pattern(regex: str) -> str | None:
    """A regular expression as a pattern of a route."""
    regex = regex.removeprefix("^")
    regex = regex.removesuffix("$") if not regex.endswith("\\$") else regex
    parts, at = [], 0
    while at < len(regex):
        match = _PART.match(regex, at)
        if match is None or regex[match.end() : match.end() + 1] in ("?", "+", "*", "{"):
            return None
        parts.append((match.lastgroup or "", match[match.lastgroup or 0]))
        at = match.end()
    kinds = [kind for kind, _ in parts]
    dots = [n for n, part in enumerate(parts) if part in (("literal", "."), ("set", "[.]"))]
    if not dots and kinds.count("one") == 1 and not {"any", "some", "set"} & set(kinds):
        # "shop.orders": a namespace has a dot, and there is no other character for it.
        return "".join("." if kind == "one" else text for kind, text in parts)
    texts = []
    for kind, text in parts:
        if kind in ("literal", "plain") and _WILD.search(text):
            return None
        if kind == "set":
            text = "." if text == "[.]" else text
        texts.append({"any": "*", "some": "?*", "one": "?"}.get(kind, text))
    return "".join(texts)


def _has_two_parts(pattern: str) -> bool:
    database, dot, collection = pattern.partition(".")
    whole = bool(database and dot and collection)
    return whole and "*" not in database[:-1] and "[" not in database
