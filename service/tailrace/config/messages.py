"""Pydantic's errors in the operator's words: the path of the file, what is allowed, what was meant.

No message shows a value that came from the environment, or any connection string.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tailrace.config.descriptions import descriptions
from tailrace.config.interpolation import Interpolated, Unresolved
from tailrace.config.one_of import MARK, OneOf, kinds
from tailrace.config.paths import Location, path_of
from tailrace.config.settings import Settings
from tailrace.errors import Problem

_WANTED = {
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "string_sub_type": "must be text",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "mapping_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "finite_number": "must be a finite number",
}
_SECRETS = (("uri",), ("token",))
"""Keys whose values are never quoted, not even where they are no text: a token of digits, say."""
_LIMITS = {
    "greater_than": ("gt", "must be greater than {}"),
    "greater_than_equal": ("ge", "must be at least {}"),
    "less_than": ("lt", "must be less than {}"),
    "less_than_equal": ("le", "must be at most {}"),
}


def problems_of(error: ValidationError) -> Iterator[tuple[Location, Problem]]:
    """Every problem that pydantic found, with its place in the file."""
    details = error.errors(include_url=False)
    for detail in details:
        if _reported(detail):
            continue
        if detail["type"] == "too_short" and detail["input"]:
            continue  # its items are wrong, and reported
        location = _location(detail)
        yield location, Problem(path_of(location), _message(detail))


def _reported(detail: ErrorDetails) -> bool:
    """Whether the value could not even be read, which has been said already."""
    value = detail["input"]
    if detail["type"] == "one_of" and isinstance(value, dict):
        value = value.get(detail["ctx"]["key"])
    return isinstance(value, Unresolved) and detail["type"] != "extra_forbidden"


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """What a mistyped word was probably meant to be, as the end of a sentence."""
    import difflib  # for mistakes only

    close = difflib.get_close_matches(str(word), list(known), n=1, cutoff=0.65)
    return f"; did you mean {close[0]!r}?" if close else ""


def _location(detail: ErrorDetails) -> Location:
    parts = [part for part in detail["loc"] if not str(part).startswith(MARK)]
    if parts and parts[-1] == "[key]":
        parts.pop()
    if detail["type"] == "one_of" and isinstance(detail["input"], dict):
        parts.append(detail["ctx"]["key"])
    return tuple(parts)


def _message(detail: ErrorDetails) -> str:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    shown = "" if detail["loc"][-1:] in _SECRETS else _shown(value)
    if kind == "missing":
        return _missing(detail["loc"])
    if kind == "extra_forbidden":
        return _unknown(detail["loc"])
    if kind == "one_of":
        return _kind(value, context)
    if kind == "literal_error":
        known = [word.strip("'") for word in context["expected"].replace(" or ", ", ").split(", ")]
        return f"must be {_either(known)}{shown}{did_you_mean(value, known)}"
    if kind == "too_short":
        return (
            "must not be empty; leave the key out for all"
            if _optional(detail["loc"])
            else ("needs at least one entry")
        )
    if kind in _LIMITS:
        name, words = _LIMITS[kind]
        return words.format(f"{context[name]:.10g}") + shown
    if kind == "value_error":
        return str(context["error"])
    if kind in _WANTED:
        return _WANTED[kind] + shown + _cure(kind, value)
    return detail["msg"]


def _shown(value: Any) -> str:
    if isinstance(value, Interpolated):
        return ", which the environment's value is not"
    if isinstance(value, str) and ("://" in value or "@" in value):
        return ""  # a connection string in the wrong place
    if value is None:
        return ", not empty"
    if isinstance(value, bool):
        return f", not {str(value).lower()}"
    if isinstance(value, dict):
        return ", not a mapping"
    if isinstance(value, list):
        return ", not a list"
    text = str(value) if isinstance(value, int | float | date) else repr(value)
    return f", not {text if len(text) <= 60 else text[:57] + '…'}"


def _cure(kind: str, value: Any) -> str:
    if kind == "string_type" and isinstance(value, int | float | date):
        return "; put it in quotes"
    if not isinstance(value, str) or isinstance(value, Interpolated):
        return ""
    if kind in ("int_type", "float_type") and _is_number(value):
        return "; take the quotes away"
    if kind == "bool_type" and value.lower() in ("true", "false"):
        return "; take the quotes away"
    return ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _kind(value: Any, context: dict[str, Any]) -> str:
    key, known = context["key"], context["known"].split()
    if not isinstance(value, dict):
        return f"must be a mapping with the key {key} ({_either(known)}){_shown(value)}"
    word = value.get(key)
    if word is None:
        return f"is required: {_either(known)}"
    return f"must be {_either(known)}{_shown(word)}{did_you_mean(word, known)}"


def _either(words: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


# --- what the schema knows about a place ---------------------------------------------------


def _missing(location: tuple[str | int, ...]) -> str:
    section = _section(location[:-1])
    about = descriptions(section).get(str(location[-1]), "") if section else ""
    return f"is required: {about.split('. ')[0].rstrip('.')}" if about else "is required"


def _unknown(location: tuple[str | int, ...]) -> str:
    key, section = location[-1], _section(location[:-1])
    known = _keys(section) if section else []
    if owner := _sibling(location):
        return owner
    if close := did_you_mean(key, known):
        return f"is not a known key{close}"
    return f"is not a known key; known here: {', '.join(known)}"


def _keys(section: type[BaseModel]) -> list[str]:
    return [info.alias or name for name, info in section.model_fields.items()]


def _sibling(location: tuple[str | int, ...]) -> str:
    """Whether another kind of the same section has the key."""
    if len(location) < 2 or not str(location[-2]).startswith(MARK):
        return ""
    key, mine = str(location[-1]), str(location[-2])[1:]
    union, chooser = _bare(_annotation(location[:-2]))
    for word, cls in kinds(union, chooser).items() if chooser else ():
        if word != mine and key in _keys(cls):
            return f"belongs to {chooser}: {word}, not to {chooser}: {mine}"
    return ""


def _optional(location: tuple[str | int, ...]) -> bool:
    section = _section(location[:-1])
    info = section.model_fields.get(str(location[-1])) if section else None
    return info is not None and not info.is_required()


def _section(location: tuple[str | int, ...]) -> type[BaseModel] | None:
    kind, _ = _bare(_annotation(location))
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _annotation(location: tuple[str | int, ...]) -> Any:
    """The annotation of what stands at the place."""
    here: Any = Settings
    for part in location:
        here, chooser = _bare(here)
        if isinstance(part, str) and part.startswith(MARK) and chooser:
            here = kinds(here, chooser)[part[1:]]
        elif isinstance(here, type) and issubclass(here, BaseModel):
            here = next(
                Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
                for name, info in here.model_fields.items()
                if part in (name, info.alias)
            )
        else:
            arguments = get_args(here)
            here = arguments[0] if get_origin(here) is tuple else arguments[-1]
    return here


def _bare(annotation: Any) -> tuple[Any, str]:
    """Without its metadata; beside it the key that chooses among its kinds, if it has such."""
    if get_origin(annotation) is not Annotated:
        return annotation, ""
    bare, *metadata = get_args(annotation)
    return bare, next((item.key for item in metadata if isinstance(item, OneOf)), "")
