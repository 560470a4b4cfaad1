"""What the server says about an update."""

from typing import Any

Document = dict[str, Any]


def described(before: Document, after: Document) -> Document:
    """The ``updateDescription`` of an update that makes ``after`` of ``before``, as with
    ``showExpandedEvents``. Raises ``ValueError`` if two fields have one path."""
    update: Document = {
        "updatedFields": {},
        "removedFields": [],
        "truncatedArrays": [],
        "disambiguatedPaths": {},
    }
    _note(before, after, (), update)
    paths = update["disambiguatedPaths"].items()
    update["disambiguatedPaths"] = {path: parts for path, parts in paths if _is_ambiguous(parts)}
    return update


def _is_ambiguous(parts: list[str | int]) -> bool:
    return any(isinstance(part, int) or "." in part or part.isdigit() for part in parts)


def _note(before: Any, after: Any, above: tuple[str | int, ...], update: Document) -> None:
    pairs: list[tuple[str | int, Any, Any]]
    if type(before) is type(after) is dict:
        names = [*before, *(name for name in after if name not in before)]
        update["removedFields"] += [
            _path((*above, name), update) for name in before if name not in after
        ]
        pairs = [(name, before.get(name, ...), after[name]) for name in names if name in after]
    else:
        assert type(before) is type(after) is list
        if len(after) < len(before):
            short = {"field": _path(above, update), "newSize": len(after)}
            update["truncatedArrays"].append(short)
        padded = [*before, *([...] * len(after))]
        pairs = [(at, padded[at], value) for at, value in enumerate(after)]
    for part, old, new in pairs:
        if type(old) is type(new) and isinstance(new, dict | list) and old and new:
            _note(old, new, (*above, part), update)
        elif type(old) is not type(new) or old != new:
            path = _path((*above, part), update)
            if path in update["updatedFields"]:
                raise ValueError(path)
            update["updatedFields"][path] = new


def _path(parts: tuple[str | int, ...], update: Document) -> str:
    path = ".".join(map(str, parts))
    if update["disambiguatedPaths"].setdefault(path, [*parts]) != [*parts]:
        raise ValueError(path)
    return path
