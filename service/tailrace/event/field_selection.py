"""Which fields of BSON documents are taken, left out and renamed, by their paths."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tailrace.event import bson
from tailrace.event.bson import ARRAY, DOCUMENT, NULL, encoded, walk
from tailrace.event.raw_fields import array_of, element, names_of, two_of


@dataclass(slots=True)
class SelectionNode:
    """What happens to a field, and to those below it."""

    taken: bool = False
    left_out: bool = False
    name: bytes | None = None
    below: dict[bytes, SelectionNode] = field(default_factory=dict)

    def at(self, path: str) -> SelectionNode:
        """The node at a path, made if missing. Raises ``ValueError`` for an array's index."""
        node = self
        for name in names_of(path):
            node = node.below.setdefault(name, SelectionNode())
        return node

    @property
    def takes(self) -> bool:
        """Whether this field or one below it is taken."""
        return self.taken or any(node.takes for node in self.below.values())


class SelectedField(NamedTuple):
    """A field that stays: its name, and what happens below it (``None``: nothing). With
    ``is_index``, it may be an element of an array."""

    name: bytes
    node: SelectionNode | None = None
    only_taken: bool = False
    is_index: bool = False


def selected_field(
    name: bytes, node: SelectionNode, only_taken: bool, *, root: bool = False
) -> SelectedField | None:
    """What becomes of a field of the document at ``node``; ``None`` if it goes.

    In updates, a number is an index of an array, or the name of a field: so it is like an index.
    A null stands in its place if nothing is taken of its value, because updates name the later
    elements of an array by their indices.
    """
    below = node.below.get(name)
    if below is None and not root and name.isdigit():
        return SelectedField(name, node, only_taken, is_index=True)
    if below is None:
        return None if only_taken else SelectedField(name)
    only_taken = only_taken and not below.taken
    if below.left_out or (only_taken and not below.takes):
        return None
    return SelectedField(below.name or name, below if below.below else None, only_taken)


def selected_value(raw: bytes, kind: int, field: SelectedField) -> bytes | None:
    """A value of BSON, mapped; ``None`` if nothing below it can be taken from it."""
    if field.node is None:
        return raw
    if kind == DOCUMENT:
        return selected_document(raw, 0, field.node, field.only_taken)
    if kind == ARRAY:
        values = [
            (part, selected_value(raw[at:end], part, field)) for _, part, at, end in walk(raw, 0)
        ]
        return array_of([(NULL, b"") if value is None else (part, value) for part, value in values])
    return None if field.only_taken else raw


def selected_document(
    raw: bytes, start: int, node: SelectionNode, only_taken: bool, *, root: bool = False
) -> bytes:
    pieces, copied = list[bytes](), start + 4
    names, renamed = list[bytes](), list[bytes]()
    for name, kind, at, end in walk(raw, start):
        stays = not only_taken and name not in node.below and (root or not name.isdigit())
        if stays or (root and name == b"_id"):
            names.append(name)
            continue
        pieces.append(raw[copied : at - len(name) - 2])
        copied = end
        field = selected_field(name, node, only_taken, root=root)
        value = None if field is None else selected_value(raw[at:end], kind, field)
        if value is None and field is not None and field.is_index:
            kind, value = NULL, b""
        if field is not None and value is not None:
            (names if field.name == name else renamed).append(field.name)
            pieces.append(element(kind, field.name, value))
    if renamed and (both := {*names} & {*renamed}):
        raise two_of("rename", min(both))
    pieces.append(raw[copied : start + bson.INT32(raw, start)[0] - 1])
    return encoded(b"".join(pieces))


def require_names(node: SelectionNode, path: str) -> None:
    names: dict[bytes, bytes] = {}
    for own, below in node.below.items():
        require_names(below, f"{path}{own.decode()}.")
        if below.left_out:
            continue
        name = below.name or own
        if name in names:
            raise ValueError(
                f"{path}{names[name].decode()} and {path}{own.decode()} would have one name, "
                f"{name.decode()!r}"
            )
        names[name] = own
