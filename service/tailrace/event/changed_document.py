"""BSON documents with other values at some of their paths.

A path reaches into every document of an array. One that leads to a document or an array covers
every value in it. Below the first name, fields whose names are numbers are like indices: an update
of ``a.0.b`` makes a document ``{0: {b: …}}`` where there was no array, and its path looks the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct, error

from tailrace.event.bson import (
    ARRAY,
    DOCUMENT,
    FIXED,
    INT32,
    NULL,
    STRING,
    UNDEFINED,
    encoded,
    malformed,
    measured,
    walk,
)
from tailrace.event.raw_fields import element
from tailrace.event.value_change import Change

_LENGTH = Struct("<i").pack
CONTAINERS = (DOCUMENT, ARRAY)
_EMPTY_VALUES = (NULL, UNDEFINED)
_STRING = b"%c" % STRING
_KEEP_THEIR_TYPE = frozenset((*CONTAINERS, *_EMPTY_VALUES))
"""Other values become texts."""
_numbered = re.compile(rb"[%b%b][0-9]+\0" % (bytes([DOCUMENT]), bytes([ARRAY]))).search
"""Looks like a document or an array whose name is a number: its type, and the name."""


@dataclass(slots=True)
class ProtectedNode:
    """What happens to a field, or to those below it."""

    change: Change | None = None
    below: dict[bytes, ProtectedNode] = field(default_factory=dict)
    terminated: dict[bytes, ProtectedNode] = field(default_factory=dict)
    """The same by the names with the NUL after them."""

    def child(self, name: bytes) -> ProtectedNode:
        """The node of a field below it."""
        if name not in self.below:
            self.below[name] = self.terminated[name + b"\0"] = ProtectedNode()
        return self.below[name]


def changed_document(buffer: bytes, start: int, node: ProtectedNode) -> bytes | None:
    """The document at ``start`` with what changes in it; ``None`` if nothing does.

    It is read up to each place where a name is found, which may lie within a value, and no further
    than to the last one.
    """
    size: int = INT32(buffer, start)[0]
    begin, last = start + 4, start + size - 1
    found: dict[int, bytes] = {}
    for name in node.terminated:
        if (at := buffer.find(name, begin + 1, last)) >= 0:
            found[at] = name
    if not found:
        return None
    element_at = end = copied = begin
    pieces = [b""]
    try:
        while found:
            name_at = min(found)
            name = found.pop(name_at)
            while end < name_at:  # as walk, which takes twice as long
                element_at, kind, at = end, buffer[end], buffer.index(0, end + 1) + 1
                length = 4 + INT32(buffer, at)[0] if kind == STRING else FIXED.get(kind)
                end = at + (measured(buffer, kind, at) if length is None else length)
                if end > last or end < at:
                    raise ValueError(end)
            if element_at + 1 == name_at:
                child = node.terminated[name]
                changed: bytes | None
                if child.change is None or kind in _KEEP_THEIR_TYPE:
                    new = buffer[element_at:name_at]
                    changed = changed_value(buffer, kind, at, end, child)
                else:
                    new, changed = _STRING, child.change(kind, buffer[at:end])
                if changed is not None:
                    pieces += (buffer[copied:element_at], new, name, changed)
                    size += len(changed) - (end - at)
                    copied = end
            if (name_at := buffer.find(name, end + 1, last)) >= 0:  # not in the type before it
                found[name_at] = name
    except (IndexError, ValueError, error):
        raise malformed(element_at, "no element of a known type and size") from None
    if copied == begin:
        return None
    pieces[0] = _LENGTH(size)
    pieces += (buffer[copied:last], b"\0")
    return b"".join(pieces)


def changed_paths(buffer: bytes, start: int, root: ProtectedNode) -> bytes | None:
    """A document whose names are dotted paths with what changes in it."""
    last = start + INT32(buffer, start)[0]
    if all(buffer.find(name, start, last) < 0 for name in root.below):
        return None
    made: list[tuple[int, int, bytes]] = []
    for path, kind, at, end in walk(buffer, start):
        node = _at(path, root)
        changed = None if node is None else changed_value(buffer, kind, at, end, node)
        if node is not None and changed is not None:
            made.append(_element(path, kind, at, end, changed, node))
    return spliced(buffer, start, made) if made else None


def changed_update(buffer: bytes, start: int, root: ProtectedNode) -> bytes | None:
    for name, kind, at, end in walk(buffer, start):
        if name == b"updatedFields" and kind == DOCUMENT:
            changed = changed_paths(buffer, at, root)
            return None if changed is None else spliced(buffer, start, [(at, end, changed)])
    return None


def _at(path: bytes, root: ProtectedNode) -> ProtectedNode | None:
    """The node of a path of an update, which may hold indices of arrays."""
    node: ProtectedNode | None = root
    for index, part in enumerate(path.split(b".")):
        if node is None or node.change is not None:
            return node
        if index == 0 or not part.isdigit():
            node = node.below.get(part)
    return node


def changed_value(buffer: bytes, kind: int, at: int, end: int, node: ProtectedNode) -> bytes | None:
    """The value between two offsets as it becomes; ``None`` if it stays."""
    if node.change is not None:
        if kind in _EMPTY_VALUES:
            return None
        if kind in CONTAINERS:
            return _all_of(buffer, at, node.change)
        return node.change(kind, buffer[at:end])
    if kind == DOCUMENT:
        if _numbered(buffer, at, end) is not None:
            return _numbered_document(buffer, at, node)
        return changed_document(buffer, at, node)
    if kind != ARRAY:
        return None
    made: list[tuple[int, int, bytes]] = []
    for _, part, begin, stop in walk(buffer, at):
        if (
            part in CONTAINERS
            and (changed := changed_value(buffer, part, begin, stop, node)) is not None
        ):
            made.append((begin, stop, changed))
    return spliced(buffer, at, made) if made else None


def _numbered_document(buffer: bytes, start: int, node: ProtectedNode) -> bytes | None:
    """As :func:`changed_document`, and what is in fields whose names are numbers."""
    made: list[tuple[int, int, bytes]] = []
    for name, kind, at, end in walk(buffer, start):
        child = node if name.isdigit() else node.below.get(name)
        changed = None if child is None else changed_value(buffer, kind, at, end, child)
        if child is not None and changed is not None:
            made.append(_element(name, kind, at, end, changed, child))
    return spliced(buffer, start, made) if made else None


def _all_of(buffer: bytes, start: int, change: Change) -> bytes:
    """A document or array, with all values in it changed."""
    made: list[bytes] = []
    for name, kind, at, end in walk(buffer, start):
        value, new = buffer[at:end], kind
        if kind in CONTAINERS:
            value = _all_of(buffer, at, change)
        elif kind not in _EMPTY_VALUES:
            value, new = change(kind, value), STRING
        made.append(element(new, name, value))
    return encoded(b"".join(made))


def _element(
    name: bytes, kind: int, at: int, end: int, changed: bytes, node: ProtectedNode
) -> tuple[int, int, bytes]:
    """Where an element is, and what it becomes. One whose own value changes becomes a text."""
    if node.change is None or kind in CONTAINERS:
        return at, end, changed
    return at - len(name) - 2, end, b"\x02%b\0%b" % (name, changed)


def spliced(buffer: bytes, start: int, made: Sequence[tuple[int, int, bytes]]) -> bytes:
    """The document at ``start`` with other bytes between pairs of offsets, in order."""
    pieces, copied = list[bytes](), start + 4
    for begin, end, changed in made:
        pieces += (buffer[copied:begin], changed)
        copied = end
    pieces.append(buffer[copied : start + INT32(buffer, start)[0] - 1])
    return encoded(b"".join(pieces))
