"""Hashes and masks fields of the documents in events, on their BSON.

It comes before everything else that happens to an event on its way to one handler: its calls, its
dead letters, its log lines and its comparison with the source only have what this returns.
:mod:`tailrace.event.field_mapping` selects and names fields afterwards.

Paths are dotted, and below an array they apply to each document in it. A path may lead to a
document or an array: then every value in it is hashed or masked, so that an update of a part, as in
``updatedFields``, gives what the whole document has. A null stays null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from struct import error

from tailrace.event import layout
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
    string_at,
    walk,
)
from tailrace.event.change_event import ChangeEvent
from tailrace.event.other_id import OtherId
from tailrace.event.value_change import Change

_IMAGES = (b"fullDocument", b"fullDocumentBeforeChange")
_DONE = b"\x04tailraceProtected\0"
"""The element of a dead letter's event with the paths that are hashed or masked in it."""
_OF_SNAPSHOT = b"\x02snapshot\0"
_CONTAINERS = (DOCUMENT, ARRAY)
_EMPTY_VALUES = (NULL, UNDEFINED)
_KINDS_KEPT = (*_CONTAINERS, *_EMPTY_VALUES)
"""The types of values that do not become a text."""


@dataclass(slots=True)
class _ProtectedNode:
    """What happens to a field, or to those below it."""

    change: Change | None = None
    below: dict[bytes, _ProtectedNode] = field(default_factory=dict)
    named: list[bytes] = field(default_factory=list)
    """The names below it, with the NUL after them."""

    def child(self, name: bytes) -> _ProtectedNode:
        """The node of a field below it."""
        if name not in self.below:
            self.below[name] = _ProtectedNode()
            self.named.append(name + b"\0")
        return self.below[name]


class FieldProtection:
    """Changes the values at these paths. If ``_id`` is one of them, events have another ``_id``,
    too, and the same token.

    Raises ``ValueError`` for a path that lies below another one, or is an array's index.
    """

    def __init__(self, changes: Mapping[str, Change]) -> None:
        self._changes = changes
        self._root = _ProtectedNode()
        self._id_change: Change | None = None
        for path, change in changes.items():
            node = self._root
            for part in path.split("."):
                if part.isdigit():
                    raise ValueError(
                        f"{path!r} has an array's index: a path reaches into every document of an "
                        "array without one"
                    )
                if node.change is not None:
                    break
                node = node.child(part.encode())
            if node.change is not None or node.below:
                raise ValueError(f"{path!r} lies above or below another path, which covers it")
            node.change = change
            if path.split(".")[0] == "_id":
                self._id_change = change

    def of(self, events: Sequence[ChangeEvent]) -> list[ChangeEvent]:
        """The events with the changed values, at the same indices."""
        return [self.of_event(event) for event in events]

    def of_event(self, event: ChangeEvent) -> ChangeEvent:
        """The event with the changed values: in its images, its key and its update."""
        made = self._event(event)
        if made is None:
            return event
        return ChangeEvent(made) if self._id_change is None else OtherId(made, event.token)

    def of_document(self, raw: bytes) -> bytes:
        """A document of a collection with the changed values."""
        return _document(raw, 0, self._root) or raw

    def noted(self, event: ChangeEvent) -> ChangeEvent:
        """An event that :meth:`of` returned, with a note of that for :meth:`of_noted`."""
        paths = [b"\x02%d\0%b" % (at, _string(path)) for at, path in enumerate(self._changes)]
        return ChangeEvent.from_raw(encoded(event.raw[4:-1] + _DONE + encoded(b"".join(paths))))

    def of_noted(self, event: ChangeEvent) -> ChangeEvent:
        """The event of a dead letter: what is hashed or masked in it stays as it is."""
        raw, done = event.raw, set[str]()
        begin = raw.rfind(_DONE)
        for name, kind, at, end in walk(raw, 0) if begin > 0 else ():
            if at - len(name) - 2 == begin and kind == ARRAY:
                done = {string_at(raw, value) for _, _, value, _ in walk(raw, at)}
                event = ChangeEvent.from_raw(encoded(raw[4:begin] + raw[end:-1]))
        if not done:
            return self.of_event(event)
        rest = {path: change for path, change in self._changes.items() if path not in done}
        return FieldProtection(rest).of_event(event) if rest else event

    def _event(self, event: ChangeEvent) -> bytes | None:
        parts, raw, root = event.parts, event.raw, self._root
        if parts[layout.END] < 0:
            return self._walked(raw)
        first = parts[layout.END] - len(raw)
        made: list[tuple[int, int, bytes]] = []
        for part, changed_at in _CHANGED_PARTS:
            begin = parts[part] - first
            if parts[part] >= 0 and (changed := changed_at(raw, begin, root)) is not None:
                made.append((begin, parts[part + 1] - first, changed))
        if self._id_change is not None and parts[layout.DOCUMENT_KEY] >= 0:
            begin, end = (parts[at] - first for at in (layout.TOKEN, layout.TOKEN + 1))
            made.append((begin, end, self._own_id(raw[begin:end])))
        return _spliced(raw, 0, sorted(made)) if made else None

    def _own_id(self, own: bytes) -> bytes:
        """The ``_id`` of an event, in which a server's token and a row's id hold that of the
        document."""
        assert self._id_change is not None  # noqa: S101 - for the type checker
        if own.startswith(_OF_SNAPSHOT, 4):
            only_id = _ProtectedNode(below={b"_id": self._root.below[b"_id"]}, named=[b"_id\0"])
            return _document(own, 0, only_id) or own
        text = f"hmac-sha-256:{self._id_change(DOCUMENT, own)}"
        return encoded(b"\x02_data\0" + _string(text))

    def _walked(self, raw: bytes) -> bytes | None:
        """The same of an event whose fields are in another order or of other types."""
        made: list[tuple[int, int, bytes]] = []
        for name, kind, at, end in walk(raw, 0):
            changed: bytes | None = None
            if name in _IMAGES and kind in _CONTAINERS:
                changed = _value(raw, kind, at, end, self._root)
            elif name == b"documentKey" and kind == DOCUMENT:
                changed = _paths(raw, at, self._root)
            elif name == b"updateDescription" and kind == DOCUMENT:
                changed = _update(raw, at, self._root)
            elif name == b"_id" and kind == DOCUMENT and self._id_change is not None:
                changed = self._own_id(raw[at:end])
            if changed is not None:
                made.append((at, end, changed))
        return _spliced(raw, 0, made) if made else None


def _document(buffer: bytes, start: int, node: _ProtectedNode) -> bytes | None:
    """The document at ``start`` with what changes in it; ``None`` if nothing does."""
    end = start + INT32(buffer, start)[0]
    below, left = node.below, 0
    for name in node.named:  # most documents are not read to their end
        left += buffer.count(name, start, end)
    if not left:
        return None
    pieces, copied = list[bytes](), start + 4
    position, last = start + 4, end - 1
    try:
        while left and position < last:  # as walk, which takes twice as long
            kind, at = buffer[position], buffer.index(0, position + 1) + 1
            size = 4 + INT32(buffer, at)[0] if kind == STRING else FIXED.get(kind)
            stop = at + (measured(buffer, kind, at) if size is None else size)
            name = buffer[position + 1 : at - 1]
            if stop > last or stop < at:
                raise ValueError(stop)
            if (child := below.get(name)) is not None:
                left -= 1
                if (change := child.change) is not None and kind not in _KINDS_KEPT:
                    value = change(kind, buffer[at:stop]).encode()
                    size = (len(value) + 1).to_bytes(4, "little")
                    pieces += (buffer[copied:position], b"\2", name, b"\0", size, value, b"\0")
                    copied = stop
                elif (changed := _value(buffer, kind, at, stop, child)) is not None:
                    pieces += (buffer[copied:at], changed)
                    copied = stop
            position = stop
    except (IndexError, ValueError, error):
        raise malformed(position, "no element of a known type and size") from None
    if not pieces:
        return None
    pieces.append(buffer[copied:last])
    return encoded(b"".join(pieces))


def _paths(buffer: bytes, start: int, root: _ProtectedNode) -> bytes | None:
    """A document whose names are dotted paths with what changes in it."""
    last = start + INT32(buffer, start)[0]
    if all(buffer.find(name, start, last) < 0 for name in root.below):
        return None
    made: list[tuple[int, int, bytes]] = []
    for path, kind, at, end in walk(buffer, start):
        node = _at(path, root)
        changed = None if node is None else _value(buffer, kind, at, end, node)
        if node is not None and changed is not None:
            made.append(_element(path, kind, at, end, changed, node))
    return _spliced(buffer, start, made) if made else None


def _update(buffer: bytes, start: int, root: _ProtectedNode) -> bytes | None:
    for name, kind, at, end in walk(buffer, start):
        if name == b"updatedFields" and kind == DOCUMENT:
            changed = _paths(buffer, at, root)
            return None if changed is None else _spliced(buffer, start, [(at, end, changed)])
    return None


def _at(path: bytes, root: _ProtectedNode) -> _ProtectedNode | None:
    """The node of a path of an update, which may hold indices of arrays."""
    node: _ProtectedNode | None = root
    for part in path.split(b"."):
        if node is None or node.change is not None:
            return node
        if not part.isdigit():
            node = node.below.get(part)
    return node


def _value(buffer: bytes, kind: int, at: int, end: int, node: _ProtectedNode) -> bytes | None:
    """The value between two offsets as it becomes; ``None`` if it stays."""
    if node.change is not None:
        if kind in _EMPTY_VALUES:
            return None
        if kind in _CONTAINERS:
            return _all_of(buffer, at, node.change)
        return _string(node.change(kind, buffer[at:end]))
    if kind == DOCUMENT:
        return _document(buffer, at, node)
    if kind != ARRAY:
        return None
    made: list[tuple[int, int, bytes]] = []
    for _, part, begin, stop in walk(buffer, at):
        if part in _CONTAINERS and (changed := _value(buffer, part, begin, stop, node)) is not None:
            made.append((begin, stop, changed))
    return _spliced(buffer, at, made) if made else None


def _all_of(buffer: bytes, start: int, change: Change) -> bytes:
    """A document or array, with all values in it changed."""
    made: list[bytes] = []
    for name, kind, at, end in walk(buffer, start):
        value, new = buffer[at:end], kind
        if kind in _CONTAINERS:
            value = _all_of(buffer, at, change)
        elif kind not in _EMPTY_VALUES:
            value, new = _string(change(kind, value)), STRING
        made.append(b"%c%b\0%b" % (new, name, value))
    return encoded(b"".join(made))


def _element(
    name: bytes, kind: int, at: int, end: int, changed: bytes, node: _ProtectedNode
) -> tuple[int, int, bytes]:
    """Where an element is, and what it becomes. One whose own value changes becomes a text."""
    if node.change is None or kind in _CONTAINERS:
        return at, end, changed
    return at - len(name) - 2, end, b"\x02%b\0%b" % (name, changed)


def _spliced(buffer: bytes, start: int, made: Sequence[tuple[int, int, bytes]]) -> bytes:
    """The document at ``start`` with other bytes between pairs of offsets, in order."""
    pieces, copied = list[bytes](), start + 4
    for begin, end, changed in made:
        pieces += (buffer[copied:begin], changed)
        copied = end
    pieces.append(buffer[copied : start + INT32(buffer, start)[0] - 1])
    return encoded(b"".join(pieces))


def _string(text: str) -> bytes:
    data = text.encode()
    return (len(data) + 1).to_bytes(4, "little") + data + b"\0"


_CHANGED_PARTS = (
    (layout.FULL_DOCUMENT, _document),
    (layout.BEFORE_CHANGE, _document),
    (layout.DOCUMENT_KEY, _paths),
    (layout.UPDATE, _update),
)
