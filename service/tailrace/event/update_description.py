"""Applies an update event's description to the document before the update.

``updateDescription`` is the server's delta oplog entry, flattened into paths: mongod writes it in
``change_stream_document_diff_parser.cpp``, and ``document_diff_applier.cpp`` shows what it means.
The order of the three parts does not matter there, because a diff names every field once (code
4728000). In descriptions of other origin, arrays are truncated first, as by the server, then fields
are removed, then set.

An event does not tell whether an updated field kept its place or moved to the end (here it keeps
its place). Without ``disambiguatedPaths`` (``showExpandedEvents``) it does not tell whether ``a.b``
is a path or a name (here it is a path).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from tailrace.event.document_tree import to_bson, tree_of

Path: TypeAlias = Sequence[str | int]
Edit: TypeAlias = Callable[[Any], Any]

UNFIT = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""The errors of a description that no server sends (a pipeline may have reshaped it)."""

_PARTS = {
    "updatedFields": dict,
    "removedFields": list,
    "truncatedArrays": list,
    "disambiguatedPaths": dict,
}
_ALWAYS = ("updatedFields", "removedFields")
"""Every server sends these parts: if one is missing, so is a part of the change."""

_GONE: Final = object()
"""Stands for a value that does not exist, or that is to be removed."""


def apply_update(document: dict[str, Any], update_description: Mapping[str, Any]) -> dict[str, Any]:
    """The document after the update. The given one does not change; the two share values.

    Like the server, this creates missing parents as documents, fills short arrays with ``None`` and
    replaces a value that blocks a path with ``None``. Then the document is newer than the change,
    and a later change corrects it. Both arguments may be canonical Extended JSON instead, or have
    the values of :mod:`tailrace.event.document_tree`.
    """
    exact: Mapping[str, Path] = {
        field: [_plain(part) for part in path]
        for field, path in (update_description.get("disambiguatedPaths") or {}).items()
    }
    after: Any = document

    def change(field: str, edit: Edit) -> None:
        nonlocal after
        after = _changed(after, exact.get(field) or field.split("."), edit)

    for array in update_description.get("truncatedArrays") or ():
        change(array["field"], _resize(int(_plain(array["newSize"]))))
    for field in update_description.get("removedFields") or ():
        change(field, lambda _: _GONE)
    for field, value in (update_description.get("updatedFields") or {}).items():
        change(field, _put(value))
    return dict(document) if after is document else cast("dict[str, Any]", after)


def updated_text(document: str | bytes, description: str | bytes) -> str:
    """The document with an ``updateDescription`` applied, all of them in Extended JSON.

    Raises one of :data:`UNFIT` for a malformed description.
    """
    change = json.loads(description)
    require_parts(change)
    after = apply_update(json.loads(document), change)
    return json.dumps(after, ensure_ascii=False, separators=(",", ":"))


def updated_bson(document: bytes | str, description: bytes | str) -> bytes:
    """The same as BSON, of BSON or canonical Extended JSON: each value keeps its type."""
    change = tree_of(description)
    require_parts(change)
    return to_bson(apply_update(tree_of(document), change))


def require_parts(update_description: Mapping[str, Any]) -> None:
    """Raises one of :data:`UNFIT` if a part is missing, or is not what the server sends."""
    for name, kind in _PARTS.items():
        found = update_description[name] if name in _ALWAYS else update_description.get(name)
        if not isinstance(found if name in _ALWAYS else found or kind(), kind):
            raise TypeError(f"{name} of an update description")
    paths = (update_description.get("disambiguatedPaths") or {}).values()
    if not all(isinstance(path, list) for path in paths):
        raise TypeError("a path of an update description")


def _plain(value: Any) -> Any:
    """An integer of Extended JSON as ``int``; other values as they are."""
    return int(next(iter(value.values()))) if isinstance(value, dict) else value


def _put(value: Any) -> Edit:
    return lambda _: value


def _resize(size: int) -> Edit:
    def edit(value: Any) -> Any:
        if value is _GONE:
            return _GONE
        return _padded(value[:size], size) if isinstance(value, list) else None

    return edit


def _changed(value: Any, path: Path, edit: Edit) -> Any:
    """``value`` with the edit at the path's end. Copies what changes, shares the rest."""
    if not path:
        return edit(value)
    if value is _GONE:
        if edit(_GONE) is _GONE:
            return _GONE  # nothing to remove or to truncate: create no parents
        value = {}
    if isinstance(value, dict):
        name = str(path[0])
        old = value.get(name, _GONE)
        new = _changed(old, path[1:], edit)
        if new is old:
            return value
        copy = {**value, name: new}
        if new is _GONE:
            del copy[name]
        return copy
    index = _index(path[0]) if isinstance(value, list) else None
    return None if index is None else _in_array(value, index, path[1:], edit)


def _in_array(value: list[Any], index: int, rest: Path, edit: Edit) -> list[Any]:
    old = value[index] if index < len(value) else _GONE
    new = _changed(old, rest, edit)
    if new is old:
        return value
    copy = _padded(value[:], index + 1)
    copy[index] = None if new is _GONE else new  # an unset element of an array keeps its place
    return copy


def _padded(array: list[Any], size: int) -> list[Any]:
    array.extend([None] * (size - len(array)))
    return array


def _index(component: str | int) -> int | None:
    """The array index that a path component means; ``None`` if it cannot be an index."""
    if isinstance(component, int):
        return component if component >= 0 else None
    canonical = component.isascii() and component.isdigit() and str(int(component)) == component
    return int(component) if canonical else None
