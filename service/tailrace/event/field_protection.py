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

from tailrace.event import layout
from tailrace.event.bson import ARRAY, DOCUMENT, STRING, encoded, string_at, string_value, walk
from tailrace.event.change_event import ChangeEvent
from tailrace.event.changed_document import (
    ProtectedNode,
    changed_document,
    changed_paths,
    changed_update,
    changed_value,
    spliced,
)
from tailrace.event.other_id import OtherId
from tailrace.event.raw_fields import array_of, names_of
from tailrace.event.value_change import Change, hashed

_IMAGES = (b"fullDocument", b"fullDocumentBeforeChange")
_DONE = b"\x04tailraceProtected\0"
"""The element of a dead letter's event with the paths that are hashed or masked in it."""
_OF_SNAPSHOT = b"\x02snapshot\0"
_AT_DATA = 4 + len(b"\x02_data\0") + 4
"""Where the text of a token begins in its BSON."""
_HASHED = b"hmac-sha-256:"
"""Begins the ``_data`` of an event's ``_id`` in place of a token."""
_Made = tuple[bytes, bool]
"""An event, and whether its ``_id`` is another one."""


class FieldProtection:
    """Changes the values at these paths. Events whose document key has one of them have another
    ``_id``, too, and the same token: a token of the server holds the document key.

    ``of_token``: what hashes the token. Raises ``ValueError`` for a path that lies below another
    one, or is an array's index.
    """

    def __init__(self, changes: Mapping[str, Change], of_token: Change | None = None) -> None:
        self._changes = changes
        self._of_token = of_token or hashed(b"")
        self._root = ProtectedNode()
        self._has_id = False
        for path, change in changes.items():
            node = self._root
            for part in names_of(path):
                if node.change is not None:
                    break
                node = node.child(part)
            if node.change is not None or node.below:
                raise ValueError(f"{path!r} lies above or below another path, which covers it")
            node.change = change
            if path.split(".")[0] == "_id":
                self._has_id = True

    def of(self, events: Sequence[ChangeEvent]) -> list[ChangeEvent]:
        """The events with the changed values, at the same indices."""
        return [self.of_event(event) for event in events]

    def of_event(self, event: ChangeEvent) -> ChangeEvent:
        """The event with the changed values: in its images, its key and its update."""
        made = self._event(event)
        if made is None:
            return event
        raw, has_other_id = made
        return OtherId(raw, event.token) if has_other_id else ChangeEvent(raw)

    def of_document(self, raw: bytes) -> bytes:
        """A document of a collection with the changed values."""
        return changed_document(raw, 0, self._root) or raw

    def noted(self, event: ChangeEvent) -> ChangeEvent:
        """An event that :meth:`of` returned, with a note of that for :meth:`of_noted`."""
        paths = array_of([(STRING, string_value(path.encode())) for path in self._changes])
        return ChangeEvent.from_raw(encoded(event.raw[4:-1] + _DONE + paths))

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
        return FieldProtection(rest, self._of_token).of_event(event) if rest else event

    def _event(self, event: ChangeEvent) -> _Made | None:
        parts, raw, root = event.parts, event.raw, self._root
        if parts[layout.END] < 0:
            return self._walked(raw)
        first = parts[layout.END] - len(raw)
        made: list[tuple[int, int, bytes]] = []
        tells = self._has_id and parts[layout.DOCUMENT_KEY] >= 0
        for part, changed_at in _CHANGED_PARTS:
            begin = parts[part] - first
            if parts[part] >= 0 and (changed := changed_at(raw, begin, root)) is not None:
                made.append((begin, parts[part + 1] - first, changed))
                tells = tells or part == layout.DOCUMENT_KEY
        if tells:
            begin, end = (parts[at] - first for at in (layout.TOKEN, layout.TOKEN + 1))
            made.append((begin, end, self._own_id(raw[begin:end])))
        return (spliced(raw, 0, sorted(made)), tells) if made else None

    def _own_id(self, own: bytes) -> bytes:
        """The ``_id`` of an event, in which a server's token holds the document key, and a row's id
        the ``_id`` of the document."""
        if own.startswith(_OF_SNAPSHOT, 4):
            if (of_id := self._root.below.get(b"_id")) is None:
                return own
            only_id = ProtectedNode(below={b"_id": of_id}, terminated={b"_id\0": of_id})
            return changed_document(own, 0, only_id) or own
        if own.startswith(_HASHED, _AT_DATA):
            return own  # of a dead letter
        text = _HASHED + string_at(self._of_token(DOCUMENT, own), 0).encode()
        return encoded(b"\x02_data\0" + string_value(text))

    def _walked(self, raw: bytes) -> _Made | None:
        """The same of an event whose fields are in another order or of other types."""
        made: list[tuple[int, int, bytes]] = []
        own, tells = list[tuple[int, int]](), self._has_id
        for name, kind, at, end in walk(raw, 0):
            changed: bytes | None = None
            if name in _IMAGES and kind == DOCUMENT:
                changed = changed_document(raw, at, self._root)
            elif name in _IMAGES:
                changed = changed_value(raw, kind, at, end, self._root)
            elif name == b"documentKey" and kind == DOCUMENT:
                changed = changed_paths(raw, at, self._root)
                tells = tells or changed is not None
            elif name == b"updateDescription" and kind == DOCUMENT:
                changed = changed_update(raw, at, self._root)
            elif name == b"_id" and kind == DOCUMENT:
                own.append((at, end))
            if changed is not None:
                made.append((at, end, changed))
        if tells:
            made += [(at, end, self._own_id(raw[at:end])) for at, end in own]
        return (spliced(raw, 0, sorted(made)), tells) if made else None


_CHANGED_PARTS = (
    (layout.FULL_DOCUMENT, changed_document),
    (layout.BEFORE_CHANGE, changed_document),
    (layout.DOCUMENT_KEY, changed_paths),
    (layout.UPDATE, changed_update),
)
