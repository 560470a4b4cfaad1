"""Pydantic's errors in the operator's words: the path of the file, what is allowed, what was meant.

No message shows a value that came from the environment, or any connection string.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import date
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tailrace.config.document import Finding, Location
from tailrace.config.interpolation import Interpolated, Unresolved
from tailrace.config.outline import Outline, Place

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
_LIMITS = {
    "greater_than": ("gt", "must be greater than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "less_than_equal": ("le", "must be at most"),
}
_SECRETS = ("uri", "token")
"""Keys whose values are never quoted, not even where they are no text: a token of digits, say."""

_WORD = re.compile(r"[^\s.\[\]\"'()]+\Z")


def path_of(location: Location) -> str:
    """The path of a place, ``scopes[0].name``; a key that would be misread stands in quotes."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif "://" in part:
            path += "[…]"  # a connection string in the place of a key
        elif _WORD.match(part):
            path += f".{part}" if path else part
        else:
            path += f"[{part!r}]"
    return path


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """What a mistyped word was probably meant to be, as the end of a sentence."""
    import difflib  # for mistakes only

    close = difflib.get_close_matches(str(word), list(known), n=1, cutoff=0.65)
    return f"; did you mean {close[0]!r}?" if close else ""


def findings_of(error: ValidationError) -> Iterator[Finding]:
    """Everything that pydantic found wrong, with its place in the file."""
    outline = Outline()
    for detail in error.errors(include_url=False):
        value, kind = detail["input"], detail["type"]
        place = outline.place(detail["loc"])
        if kind.startswith("union_tag"):
            place.location += (place.chooser,)
            value = value.get(place.chooser) if isinstance(value, dict) else value
        if isinstance(value, Unresolved) and kind != "extra_forbidden":
            continue  # it could not even be read, which has been said already
        if kind == "too_short" and value:
            continue  # its items are wrong, and reported
        yield place.location, _message(detail, value, place)


def _message(detail: ErrorDetails, value: Any, place: Place) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    shown = "" if place.location[-1:] and place.location[-1] in _SECRETS else _shown(value)
    if kind == "missing":
        about = " ".join(place.node.get("description", "").split())
        return f"is required: {about.split('. ')[0].rstrip('.')}" if about else "is required"
    if kind == "extra_forbidden":
        return _unknown_key(place)
    if kind == "literal_error":
        known = [word.strip("'") for word in context["expected"].replace(" or ", ", ").split(", ")]
        return f"must be {_either(known)}{shown}{did_you_mean(value, known)}"
    if kind == "union_tag_not_found":
        return f"is required: {_either(list(place.kinds))}"
    if kind == "union_tag_invalid":
        return f"must be {_either(list(place.kinds))}{shown}{did_you_mean(value, place.kinds)}"
    if kind == "too_short":
        if place.required:
            return "needs at least one entry"
        return "must not be empty; leave the key out for all"
    if kind in _LIMITS:
        name, words = _LIMITS[kind]
        return f"{words} {context[name]:.10g}{shown}"
    if kind == "value_error":
        return str(context["error"])
    wanted = _WANTED.get(kind, detail["msg"])
    if place.kinds and not place.kind:
        wanted += f" with the key {place.chooser} ({_either(list(place.kinds))})"
    return wanted + shown + _cure(kind, value)


def _shown(value: Any) -> str:
    if isinstance(value, Interpolated):
        return ", which the environment's value is not"
    if isinstance(value, str) and ("://" in value or "@" in value):
        return ""  # a connection string in the wrong place
    if value is None:
        return ", not empty"
    if isinstance(value, bool):
        return f", not {str(value).lower()}"
    if isinstance(value, dict | list):
        return ", not a mapping" if isinstance(value, dict) else ", not a list"
    text = str(value) if isinstance(value, int | float | date) else repr(value)
    return f", not {text if len(text) <= 60 else text[:57] + '…'}"


def _cure(kind: str, value: Any) -> str:
    if kind == "string_type" and isinstance(value, int | float | date):
        return "; put it in quotes"
    if not isinstance(value, str) or isinstance(value, Interpolated):
        return ""
    number = kind in ("int_type", "float_type") and re.fullmatch(r"[-+]?[0-9]*\.?[0-9]+", value)
    if number or (kind == "bool_type" and value.lower() in ("true", "false")):
        return "; take the quotes away"
    return ""


def _either(words: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _unknown_key(place: Place) -> str:
    key, known = place.location[-1], list(place.section.get("properties", {}))
    for word, sibling in place.kinds.items():
        if key in sibling["properties"]:
            chooser = place.chooser
            return f"belongs to {chooser}: {word}, not to {chooser}: {place.kind}"
    close = did_you_mean(key, known)
    return f"is not a known key{close or '; known here: ' + ', '.join(known)}"
