"""Takes, leaves out and renames fields in descriptions of updates, as in the documents.

A dotted path does not tell whether ``a.b`` is a field of that name: ``disambiguatedPaths`` does,
which mongod sends from 6.1 with ``showExpandedEvents``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tailrace.event import bson
from tailrace.event.bson import (
    ARRAY,
    DOCUMENT,
    EMPTY_DOCUMENT,
    NULL,
    STRING,
    encoded,
    string_at,
    string_value,
    walk,
)
from tailrace.event.field_selection import (
    SelectedField,
    SelectionNode,
    selected_field,
    selected_value,
)
from tailrace.event.raw_fields import RawField, array_of, document_of, element, two_of

_UPDATED, _EXACT = b"updatedFields", b"disambiguatedPaths"
_MISSING = NULL, b""
_ExactPaths = Mapping[bytes, Sequence[bytes]]
"""The names and indices of dotted paths that are ambiguous."""


@dataclass(frozen=True, slots=True)
class UpdateMapping:
    """What happens to fields from ``root`` on. ``constants``: the names of fields that all have."""

    root: SelectionNode
    only_taken: bool
    constants: frozenset[bytes]

    def of_description(self, raw: bytes) -> bytes:
        """An ``updateDescription``, mapped. Raises ``ValueError`` for fields that would get one
        name."""
        exact = _exact_paths(raw) if _EXACT in raw else {}
        parts = {name: (kind, raw[at:end]) for name, kind, at, end in walk(raw, 0)}
        updated, gone = list[RawField](), list[bytes]()
        if (changed := parts.get(_UPDATED, _MISSING))[0] == DOCUMENT:
            updated, gone = self._updated(changed[1], exact)
        made: list[RawField] = []
        for name, (kind, value) in parts.items():
            match name, kind:
                case b"updatedFields", bson.DOCUMENT:
                    value = document_of(updated)
                case b"removedFields", bson.ARRAY:
                    value = self._all_removed(value, updated, gone, exact)
                case b"truncatedArrays", bson.ARRAY:
                    value = array_of([*self._truncated(value, exact)])
                case b"disambiguatedPaths", bson.DOCUMENT:
                    value = document_of([*self._exact(value, exact)])
            made.append((kind, name, value))
        return document_of(made)

    def _all_removed(
        self, raw: bytes, updated: Sequence[RawField], gone: Sequence[bytes], exact: _ExactPaths
    ) -> bytes:
        """Also the paths of which nothing is taken any more, and none that is updated."""
        if len(raw) == EMPTY_DOCUMENT and not gone:
            return raw
        removed = dict.fromkeys([*self._removed(raw, exact), *gone])
        for _, path, _ in updated:
            removed.pop(path, None)
        return array_of([(STRING, string_value(path)) for path in removed])

    def _updated(self, raw: bytes, exact: _ExactPaths) -> tuple[list[RawField], list[bytes]]:
        """The fields that are updated, and the paths of those whose value is not taken."""
        paths, made, gone = dict[bytes, bytes](), list[RawField](), list[bytes]()
        for path, kind, at, end in walk(raw, 0):
            field = self._path(path, exact)
            value = None if field is None else selected_value(raw[at:end], kind, field)
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

    def _removed(self, raw: bytes, exact: _ExactPaths) -> Iterator[bytes]:
        for _, kind, at, _ in walk(raw, 0):
            field = self._path(string_at(raw, at).encode(), exact) if kind == STRING else None
            if field is not None:
                yield field.name

    def _truncated(self, raw: bytes, exact: _ExactPaths) -> Iterator[tuple[int, bytes]]:
        for _, kind, at, end in walk(raw, 0):
            made: list[bytes] = []
            for name, part, begin, stop in walk(raw[at:end], 0) if kind == DOCUMENT else ():
                value = raw[at + begin : at + stop]
                if name == b"field" and part == STRING:
                    field = self._path(string_at(raw, at + begin).encode(), exact)
                    if field is None:
                        break
                    value = string_value(field.name)
                made.append(element(part, name, value))
            else:
                yield DOCUMENT, encoded(b"".join(made))

    def _exact(self, raw: bytes, exact: _ExactPaths) -> Iterator[RawField]:
        """The ambiguous paths that stay, with the new names in their places."""
        for path, kind, at, _ in walk(raw, 0):
            found = self._parts(exact[path]) if path in exact and kind == ARRAY else None
            if found is not None:
                names, field = found
                parts = [
                    (STRING, string_value(new)) if part == STRING else (part, raw[begin:end])
                    for new, (_, part, begin, end) in zip(names, walk(raw, at), strict=True)
                ]
                yield ARRAY, field.name, array_of(parts)

    def _path(self, path: bytes, exact: _ExactPaths) -> SelectedField | None:
        """What becomes of a dotted path; ``None`` if it goes."""
        found = self._parts(exact.get(path) or path.split(b"."))
        return None if found is None else found[1]

    def _parts(self, path: Sequence[bytes]) -> tuple[Sequence[bytes], SelectedField] | None:
        """The names at the path, and what becomes of it."""
        node: SelectionNode | None = self.root
        only_taken, is_index, names = self.only_taken, False, list[bytes]()
        for index, part in enumerate(path):
            if node is None or (index == 0 and part == b"_id"):
                node = None
            else:
                field = selected_field(part, node, only_taken, root=index == 0)
                if field is None:
                    return None
                part, node, only_taken, is_index = field
                if index == 0 and part in self.constants:
                    return None
            names.append(part)
        return names, SelectedField(b".".join(names), node, only_taken, is_index)


def _exact_paths(raw: bytes) -> _ExactPaths:
    """Those of an ``updateDescription``, but for paths that it has twice: of these it does not tell
    which one is meant."""
    found, counts = dict[bytes, Sequence[bytes]](), Counter[bytes]()
    for name, kind, at, _ in walk(raw, 0):
        if (name, kind) == (_UPDATED, DOCUMENT):
            counts = Counter(path for path, *_ in walk(raw, at))
        elif (name, kind) == (_EXACT, DOCUMENT):
            for path, each, begin, _ in walk(raw, at):
                if each == ARRAY:
                    found[path] = [_part(raw, *part) for part in walk(raw, begin)]
    return {path: parts for path, parts in found.items() if counts[path] < 2}


def _part(raw: bytes, _: bytes, kind: int, at: int, end: int) -> bytes:
    if kind == STRING:
        return string_at(raw, at).encode()
    return b"%d" % int.from_bytes(raw[at:end], "little")
