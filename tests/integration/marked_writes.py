"""Random documents and updates, with a marker in each value that a rule protects or leaves out."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import bson
from bson.int64 import Int64
from pymongo.collection import Collection
from pymongo.errors import WriteError

Document = dict[str, Any]
Names = tuple[str, ...]
"""The names of a path without indices."""

_NUMBERS = 0x5EC12E7A91 << 24
"""The first number that is a marker."""


def _forms(marker: str) -> tuple[str, ...]:
    """How a text shows that begins so: as it is, in base64, and in hexadecimal."""
    whole = marker[: len(marker) // 3 * 3]
    code = marker.encode().hex()
    return marker, b64encode(whole.encode()).decode(), code, code.upper()


HIDDEN = (*_forms("concealed"), f"{_NUMBERS}"[:11])
"""What shows a value that is hashed or masked."""
HIDDEN_BYTES = (*(each.encode() for each in HIDDEN), (_NUMBERS >> 24).to_bytes(5, "little"))
"""The same in bytes, and in a number of BSON."""
KEYS = _forms("secretkey")
"""What shows the ``_id`` of a document."""
LEFT_OUT = _forms("leftout")

_FIELDS: Mapping[str, Sequence[str]] = {
    "ssn": (),
    "who": ("email", "name", "address"),
    "cards": ("number", "kind"),
    "notes": (),
    "internal": (),
    "log": ("text", "at"),
    "items": ("sku", "cost"),
    "old": (),
    "free": (),
}
"""The fields of the documents, and those below them; of those without any, others."""
_OTHERS = ("x", "y", "number")
_INDICES = ("0", "1", "2")
_RENAMES = {
    "ssn": "notes.moved",
    "notes": "ssn",
    "who.email": "cards.number",
    "who.name": "free.name",
    "free": "old",
    "internal": "log.text",
    "who.address": "internal",
}
"""Within what is covered, and within what is not."""
_PADDING = {"padding": "x" * 400}
"""Large enough that the server prefers a delta to the whole document."""


class MarkedWrites:
    """Writes to a collection, of which the seed says what they are.

    ``hidden`` and ``left_out`` are the paths whose values have a marker. With ``secret_keys``, each
    ``_id`` has one, too.
    """

    def __init__(
        self,
        random: Random,
        collection: Collection[Document],
        hidden: Sequence[str],
        left_out: Sequence[str],
        *,
        secret_keys: bool = False,
    ) -> None:
        self._random = random
        self._collection = collection
        self._hidden, self._left_out = hidden, left_out
        self._secret_keys = secret_keys
        self._ids: list[Any] = []
        self._made = 0

    def insert(self) -> Any:
        """Inserts a document, and returns its ``_id``."""
        self._made += 1
        own: Any = f"secretkey-{self._made}" if self._secret_keys else self._made
        self._collection.insert_one({"_id": own, **self._document()})
        self._ids.append(own)
        return own

    def truncate(self) -> None:
        """Inserts a document, and shortens an array of it, which others do only at times."""
        own, cards = self.insert(), [{"number": self._scalar(("cards", "number"))} for _ in "abc"]
        self._collection.update_one({"_id": own}, {"$set": {"cards": cards}})
        self._collection.update_one({"_id": own}, [{"$set": {"cards": {"$slice": ["$cards", 1]}}}])

    def write(self) -> None:
        """Inserts, replaces, updates or deletes a document."""
        random = self._random
        own = random.choice(self._ids)
        before = self._collection.find_one({"_id": own})
        if before is None or random.random() < 0.1:
            self.insert()
        elif random.random() < 0.05:
            self._collection.delete_one({"_id": own})
        elif random.random() < 0.1:
            self._collection.replace_one({"_id": own}, self._document())
        else:
            # Paths into a scalar, two that collide, $push to what is no array: never accepted.
            with suppress(WriteError):
                self._collection.update_one({"_id": own}, self._update(before))

    def _update(self, before: Document) -> Any:
        random = self._random
        path, names = self._path(before)
        more, those = self._path(before)
        old, new = random.choice(list(_RENAMES.items()))
        top, value = path.split(".", maxsplit=1)[0], self._value(names)
        arrays = [name for name in before if isinstance(before[name], list) and before[name]]
        array = random.choice(arrays) if arrays else "log"
        value_of_top = self._value((top,))
        choices: list[Any] = [
            {"$set": {path: value, more: self._value(those)}},
            {"$set": {path: value}},
            {"$set": {f"{top}.{random.choice(_INDICES)}": value_of_top}},
            {"$set": self._below_an_index(top)},
            {"$unset": {path: ""}},
            {"$unset": {path: ""}, "$set": {more: self._value(those)}},
            {"$push": {path: {"$each": [value, self._value(names)], "$position": 0}}},
            {"$push": {path: {"$each": [value], "$slice": -2}}},
            {"$push": {array: self._value((array,))}},
            {"$pop": {array: random.choice([-1, 1])}},
            {"$rename": {old: new}},
            [{"$set": {array: {"$slice": [f"${array}", 1]}}}],
            [{"$set": {top: {"$literal": value_of_top}}}],
            [{"$unset": top}],
            [{"$replaceWith": {"$literal": {**before, **self._document()}}}],
        ]
        return random.choice(choices)

    def _below_an_index(self, top: str) -> Document:
        """``a.0.b``, also where there is no array."""
        below = self._random.choice(_FIELDS[top] or _OTHERS)
        index = self._random.choice(_INDICES)
        return {f"{top}.{index}.{below}": self._value((top, below))}

    def _path(self, document: Document) -> tuple[str, Names]:
        """A path that mostly exists, and its names."""
        random, path, names = self._random, list[str](), Names()
        value: Any = document
        while True:
            if isinstance(value, list):
                part = str(random.randrange(len(value) + 1))
                value = value[int(part)] if int(part) < len(value) else None
            else:
                there = [each for each in value if each not in ("_id", *_PADDING, *_EXTRA)]
                part = random.choice(there or self._below(names))
                if random.random() < 0.3:
                    part = random.choice(self._below(names))
                value = value.get(part)
                names = next_names(names, part)
            path.append(part)
            if not isinstance(value, dict | list) or random.random() < 0.4:
                return ".".join(path), names

    def _below(self, names: Names) -> Sequence[str]:
        return [*_FIELDS] if not names else _FIELDS.get(names[0]) or _OTHERS

    def _document(self) -> Document:
        made = {name: self._value((name,)) for name in _FIELDS if self._random.random() < 0.8}
        bad = {"bad": self._random.random() < 0.3} if self._random.random() < 0.5 else {}
        return {**made, **bad, **_PADDING}

    def _value(self, names: Names, depth: int = 2) -> Any:
        random = self._random
        shape = random.random()
        if not depth or shape < 0.4:
            return self._scalar(names)
        if shape < 0.6:
            return [self._value(names, depth - 1) for _ in range(random.randrange(4))]
        below = self._below(names)
        if shape < 0.7:
            below = [*below, *_INDICES]
        chosen = random.sample(below, random.randrange(len(below) + 1))
        return {each: self._value(next_names(names, each), depth - 1) for each in chosen}

    def _scalar(self, names: Names) -> Any:
        random = self._random
        self._made += 1
        if random.random() < 0.1:
            return None
        if is_covered(names, self._hidden):
            texts = f"concealed{self._made}", f"{random.random()} concealed"
            scope = bson.Code(texts[0], {"x": texts[1]})
            kinds = [*texts, Int64(_NUMBERS + self._made), texts[0].encode(), scope]
            return random.choice([*kinds, bson.Regex(texts[0])])
        if is_covered(names, self._left_out):
            return random.choice([f"leftout{self._made}", f"leftout{self._made}".encode()])
        return random.choice([self._made, Int64(self._made), f"plain{self._made}", 1.5, True])


_EXTRA = ("bad",)


def is_covered(names: Names, paths: Sequence[str]) -> bool:
    """Whether a path is one of these, or lies below one."""
    return any(names[: path.count(".") + 1] == tuple(path.split(".")) for path in paths)


def next_names(names: Names, part: str) -> Names:
    """The names of a path after another part: below the first, a number is like an index."""
    return names if names and part.isdigit() else (*names, part)
