"""Takes, leaves out, renames, flattens and sets fields of the documents in events, on their BSON.

Paths are dotted, as in a projection of MongoDB: below an array they apply to each document in it.
Its other elements become null if nothing is taken of them, and so keep their indices.
``_id`` always stays. The document key and everything else about an event stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bson import encode

from tailrace.event.bson import DOCUMENT, encoded, walk
from tailrace.event.change_event import ChangeEvent
from tailrace.event.field_selection import SelectionNode, require_names, selected_document
from tailrace.event.flattening import Flattening
from tailrace.event.other_id import with_raw
from tailrace.event.raw_fields import element
from tailrace.event.update_mapping import UpdateMapping

_DOCUMENTS = frozenset({b"fullDocument", b"fullDocumentBeforeChange"})
_UPDATE = b"updateDescription"


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
        self._root = SelectionNode()
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
        require_names(self._root, "")
        self._updates = UpdateMapping(self._root, self._only_taken, self._constants)

    def of(self, events: Sequence[ChangeEvent]) -> list[ChangeEvent]:
        """The events with mapped documents and update descriptions, at the same indices."""
        return [with_raw(event, self._event(event.raw)) for event in events]

    def of_document(self, raw: bytes) -> bytes:
        """A document of a collection, mapped."""
        if self._only_taken or self._root.below:
            raw = selected_document(raw, 0, self._root, self._only_taken, root=True)
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
                value = self._updates.of_description(value)
            made.append(element(kind, name, value))
        return encoded(b"".join(made))
