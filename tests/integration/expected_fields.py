"""What ``fields`` makes of a decoded document, as docs/fields.md says, with the code of others."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import bson
from bson import json_util
from bson.json_util import CANONICAL_JSON_OPTIONS

from tests.integration.marked_writes import Names, is_covered, next_names

Document = Mapping[str, Any]
_NOTHING: Final = object()
"""Stands for a value of which nothing is taken."""


@dataclass(frozen=True, slots=True)
class ExpectedFields:
    """``rules``: ``fields`` as configured, without ``flatten``. ``key``: that of the hashes."""

    key: str
    rules: Mapping[str, Any]

    def of(self, document: Document) -> Document:
        """The document as a handler gets it."""
        made: Document = self._selected(self._protected(document, ()), (), "take" not in self.rules)
        return {**made, **self.rules.get("set", {})}

    def _protected(self, value: Any, names: Names) -> Any:
        if isinstance(value, dict):
            return {n: self._protected(v, next_names(names, n)) for n, v in value.items()}
        if isinstance(value, list):
            return [self._protected(each, names) for each in value]
        if value is None:
            return None
        if is_covered(names, self.rules.get("hash", ())):
            return self._digest(value)
        for path, mask in self.rules.get("mask", {}).items():
            if is_covered(names, [path]):
                return mask if isinstance(mask, str) else _kept(value, mask["keep_last"])
        return value

    def _digest(self, value: Any) -> str:
        options: Any = CANONICAL_JSON_OPTIONS
        text = json_util.dumps(
            {"": value}, json_options=options, separators=(",", ":"), ensure_ascii=False
        )
        plain = text.removeprefix('{"":')[:-1]
        return hmac.new(self.key.encode(), plain.encode(), hashlib.sha256).hexdigest()

    def _selected(self, value: Any, names: Names, is_taken: bool) -> Any:
        """``is_taken``: everything below, but for what is left out."""
        if isinstance(value, list):
            found = [self._selected(each, names, is_taken) for each in value]
            return [None if each is _NOTHING else each for each in found]
        if not isinstance(value, dict):
            return value if is_taken else _NOTHING
        made: dict[str, Any] = {}
        for name, each in value.items():
            below = next_names(names, name)
            if below == ("_id",):
                made[name] = each
                continue
            if ".".join(below) in self.rules.get("leave_out", ()):
                continue
            take = self.rules.get("take", ())
            taken = is_taken or ".".join(below) in take
            if taken or any(path.startswith(".".join((*below, ""))) for path in take):
                found = self._selected(each, below, taken)
                if found is _NOTHING and below == names:
                    found = None
                if found is not _NOTHING:
                    made[self._name(name, names, below)] = found
        return made

    def _name(self, name: str, names: Names, below: Names) -> str:
        return name if below == names else self.rules.get("rename", {}).get(".".join(below), name)


def _kept(value: Any, count: int) -> str:
    text = str(abs(value)) if type(value) in (int, bson.Int64) else value
    return f"***{text[-count:]}" if type(text) is str and len(text) > count else "***"
