"""Takes, leaves out, renames, flattens and sets fields of the documents in events, on their BSON.

Paths are dotted, as in a projection of MongoDB: below an array they apply to each document in it.
Its other elements become null if nothing is taken of them, and so keep their indices.
``_id`` always stays. The document key and everything else about an event stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bson import encode

from tailrace.event import bson
from tailrace.event.bson import (
    ARRAY,
    DOCUMENT,
    NULL,
    STRING,
    encoded,
    string_at,
    string_value,
    walk,
)
from tailrace.event.change_event import ChangeEvent
from tailrace.event.flattening import Flattening
from tailrace.event.other_id import with_raw
from tailrace.event.raw_fields import (
    RawField,
    array_of,
    document_of,
    element,
    require_one_of_each,
    two_of,
)

_DOCUMENTS = frozenset({b"fullDocument", b"fullDocumentBeforeChange"})
_UPDATE = b"updateDescription"


@dataclass(slots=True)
class _Node:
    """What happens to a field, and to those below it."""

    taken: bool = False
    left_out: bool = False
    name: bytes | None = None
    below: dict[bytes, _Node] = field(default_factory=dict)

    def at(self, path: str) -> _Node:
        """The node at a path, made if missing."""
        node = self
        for part in path.split("."):
            node = node.below.setdefault(part.encode(), _Node())
        return node

    @property
    def takes(self) -> bool:
        """Whether this field or one below it is taken."""
        return self.taken or any(node.takes for node in self.below.values())


class _MappedField(NamedTuple):
    """A field that stays: its name, and what happens below it (``None``: nothing). With
    ``is_index``, it may be an element of an array."""

    name: bytes
    node: _Node | None = None
    only_taken: bool = False
    is_index: bool = False


class FieldMapping:
    """Only the paths ``take`` (all, if empty), without ``leave_out``, and with other names; then
    flattened, and with ``constants``, which replace fields of their names.

    ``rename``: paths to the names in their places. Raises ``ValueError`` for fields that would get
    one name. Its methods raise that, too, if it shows only when a document is flattened.
    """

    def __init__(
        self,
        take: Sequence[str],
        leave_out: Sequence[str],
        rename: Mapping[str, str],
        flatten: Flattening | None = None,
        constants: Mapping[str, Any] | None = None,
    ) -> None:
        self._root = _Node()
        self._flatten = flatten
        constants = constants or {}
        self._constants = frozenset(name.encode() for name in constants)
        self._constant_elements = encode(constants)[4:-1]
        self._only_taken = bool(take)
        for path in take:
            self._root.at(path).taken = True
        for path in leave_out:
            self._root.at(path).left_out = True
        for path, name in rename.items():
            self._root.at(path).name = name.encode()
        _require_names(self._root, "")

    def of(self, events: Sequence[ChangeEvent]) -> list[ChangeEvent]:
        """The events with mapped documents and update descriptions, at the same indices."""
        return [with_raw(event, self._event(event.raw)) for event in events]

    def of_document(self, raw: bytes) -> bytes:
        """A document of a collection, mapped."""
        if self._only_taken or self._root.below:
            raw = _document(raw, 0, self._root, self._only_taken, root=True)
        if self._flatten is not None:
            raw = self._flatten.of_document(raw)
        if self._constants:
            others = [
                element(kind, name, raw[at:end])
                for name, kind, at, end in walk(raw, 0)
                if name not in self._constants
            ]
            raw = encoded(b"".join(others) + self._constant_elements)
        return raw

    def _event(self, raw: bytes) -> bytes:
        made: list[bytes] = []
        for name, kind, at, end in walk(raw, 0):
            value = raw[at:end]
            if kind == DOCUMENT and name in _DOCUMENTS:
                value = self.of_document(value)
            elif kind == DOCUMENT and name == _UPDATE:
                if self._flatten is not None:
                    continue  # it does not name the flattened fields that go with a document
                value = self._update(value)
            made.append(element(kind, name, value))
        return encoded(b"".join(made))

    def _update(self, raw: bytes) -> bytes:
        made: list[bytes] = []
        updated, gone = list[RawField](), list[bytes]()
        for name, kind, at, end in walk(raw, 0):
            if (name, kind) == (b"updatedFields", DOCUMENT):
                updated, gone = self._updated(raw[at:end])
        for name, kind, at, end in walk(raw, 0):
            value = raw[at:end]
            match name, kind:
                case b"updatedFields", bson.DOCUMENT:
                    value = document_of(updated)
                case b"removedFields", bson.ARRAY:
                    removed = [(STRING, string_value(each)) for each in gone]
                    value = array_of([*self._removed(value), *removed])
                case b"truncatedArrays", bson.ARRAY:
                    value = array_of(list(self._truncated(value)))
                case b"disambiguatedPaths", _:
                    continue  # it tells paths of the collection apart, not those of the mapping
            made.append(element(kind, name, value))
        return encoded(b"".join(made))

    def _updated(self, raw: bytes) -> tuple[list[RawField], list[bytes]]:
        """The fields that are updated, and the names of those whose value is not taken."""
        paths, made, gone = dict[bytes, bytes](), list[RawField](), list[bytes]()
        for path, kind, at, end in walk(raw, 0):
            field = self._path(path)
            value = None if field is None else _value(raw[at:end], kind, field)
            if field is None:
                continue
            if paths.setdefault(field.name, path) != path:
                raise two_of("rename", field.name)
            if value is None and field.is_index:
                made.append((NULL, field.name, b""))
            elif value is None:
                gone.append(field.name)
            else:
                made.append((kind, field.name, value))
        return made, gone

    def _removed(self, raw: bytes) -> Iterator[tuple[int, bytes]]:
        for _, kind, at, end in walk(raw, 0):
            field = self._path(string_at(raw, at).encode()) if kind == STRING else None
            if field is not None:
                yield STRING, string_value(field.name)
            elif kind != STRING:
                yield kind, raw[at:end]

    def _truncated(self, raw: bytes) -> Iterator[tuple[int, bytes]]:
        for _, kind, at, end in walk(raw, 0):
            made: list[bytes] = []
            for name, part, begin, stop in walk(raw[at:end], 0) if kind == DOCUMENT else ():
                value = raw[at + begin : at + stop]
                if name == b"field" and part == STRING:
                    field = self._path(string_at(raw, at + begin).encode())
                    if field is None:
                        break
                    value = string_value(field.name)
                made.append(element(part, name, value))
            else:
                yield DOCUMENT, encoded(b"".join(made))

    def _path(self, path: bytes) -> _MappedField | None:
        """What becomes of a dotted path of an update; ``None`` if it goes."""
        node: _Node | None = self._root
        only_taken, is_index, names = self._only_taken, False, list[bytes]()
        for index, part in enumerate(path.split(b".")):
            if node is None or (index == 0 and part == b"_id"):
                node = None
            else:
                field = _mapped(part, node, only_taken, root=index == 0)
                if field is None:
                    return None
                part, node, only_taken, is_index = field
                if index == 0 and part in self._constants:
                    return None
            names.append(part)
        return _MappedField(b".".join(names), node, only_taken, is_index)


def _mapped(
    name: bytes, node: _Node, only_taken: bool, *, root: bool = False
) -> _MappedField | None:
    """What becomes of a field of the document at ``node``; ``None`` if it goes.

    In updates, a number is an index of an array, or the name of a field: so it is like an index.
    A null stands in its place if nothing is taken of its value, because updates name the later
    elements of an array by their indices.
    """
    below = node.below.get(name)
    if below is None and not root and name.isdigit():
        return _MappedField(name, node, only_taken, is_index=True)
    if below is None:
        return None if only_taken else _MappedField(name)
    only_taken = only_taken and not below.taken
    if below.left_out or (only_taken and not below.takes):
        return None
    return _MappedField(below.name or name, below if below.below else None, only_taken)


def _value(raw: bytes, kind: int, field: _MappedField) -> bytes | None:
    """A value of BSON, mapped; ``None`` if nothing below it can be taken from it."""
    if field.node is None:
        return raw
    if kind == DOCUMENT:
        return _document(raw, 0, field.node, field.only_taken)
    if kind == ARRAY:
        values = [(part, _value(raw[at:end], part, field)) for _, part, at, end in walk(raw, 0)]
        return array_of([(NULL, b"") if value is None else (part, value) for part, value in values])
    return None if field.only_taken else raw


def _document(
    raw: bytes, start: int, node: _Node, only_taken: bool, *, root: bool = False
) -> bytes:
    pieces, names, copied = list[bytes](), list[bytes](), start + 4
    for name, kind, at, end in walk(raw, start):
        stays = not only_taken and name not in node.below and (root or not name.isdigit())
        if stays or (root and name == b"_id"):
            names.append(name)
            continue
        pieces.append(raw[copied : at - len(name) - 2])
        copied = end
        field = _mapped(name, node, only_taken, root=root)
        value = None if field is None else _value(raw[at:end], kind, field)
        if value is None and field is not None and field.is_index:
            kind, value = NULL, b""
        if field is not None and value is not None:
            names.append(field.name)
            pieces.append(element(kind, field.name, value))
    if any(below.name for below in node.below.values()):
        require_one_of_each(names, "rename")
    pieces.append(raw[copied : start + bson.INT32(raw, start)[0] - 1])
    return encoded(b"".join(pieces))


def _require_names(node: _Node, path: str) -> None:
    names: dict[bytes, bytes] = {}
    for own, below in node.below.items():
        _require_names(below, f"{path}{own.decode()}.")
        if below.left_out:
            continue
        name = below.name or own
        if name in names:
            raise ValueError(
                f"{path}{names[name].decode()} and {path}{own.decode()} would have one name, "
                f"{name.decode()!r}"
            )
        names[name] = own
