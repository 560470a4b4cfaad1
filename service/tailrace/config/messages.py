"""Words Pydantic's errors for operators: the path in the file, what is allowed, the likely intent.

No message shows a connection string or a value that came from the environment.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tailrace.config.document import Finding, Location
from tailrace.config.fields import Section
from tailrace.config.interpolation import Interpolated, Unresolved

_WANTED = {
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "finite_number": "must be a finite number",
}
_LIMITS = {
    "greater_than": "must be greater than",
    "greater_than_equal": "must be at least",
    "less_than_equal": "must be at most",
}
_SECRETS = ("uri", "token")
"""Keys whose values are never quoted, of whatever type they are."""

_WORD = re.compile(r"[^\s.\[\]\"'()]+\Z")


@dataclass(slots=True)
class _Entry:
    """A location in the file, its section, and the types from which that section was chosen."""

    location: Location = ()
    section: type[Section] = Section
    types: Sequence[type[Section]] = ()
    choice: Sequence[type[Section]] = ()
    """The possible types of the section at the location itself."""


def path_of(location: Location) -> str:
    """A location as text, such as ``scopes[0].name``; a key that would be misread is in quotes."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif "://" in part:
            path += "[…]"  # a connection string instead of a key
        elif _WORD.match(part):
            path += f".{part}" if path else part
        else:
            path += f"[{part!r}]"
    return path


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """The known word closest to a mistyped one, as the end of a sentence; empty if none is near."""
    import difflib  # needed only for mistakes

    close = difflib.get_close_matches(str(word), list(known), n=1, cutoff=0.65)
    return f"; did you mean {close[0]!r}?" if close else ""


def findings_of(error: ValidationError, model: type[Section]) -> Iterator[Finding]:
    """Everything that Pydantic found wrong in a file of this model, with its location there."""
    for detail in error.errors(include_url=False):
        value, kind = detail["input"], detail["type"]
        entry = _entry_of(detail["loc"], model)
        if kind.startswith("union_tag"):
            entry.location += ("type",)
            value = value.get("type") if isinstance(value, dict) else value
        if isinstance(value, Unresolved) and kind != "extra_forbidden":
            continue  # reported when it was read
        if kind == "too_short" and value:
            continue  # its items are wrong, which is reported
        yield entry.location, _message(detail, value, entry)


def _message(detail: ErrorDetails, value: Any, entry: _Entry) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    shown = "" if entry.location[-1:] and entry.location[-1] in _SECRETS else _shown(value)
    if kind == "missing":
        about = entry.section.by_key()[str(entry.location[-1])].description or ""
        about = " ".join(about.split())
        return f"is required: {about.split('. ')[0].rstrip('.')}"
    if kind == "extra_forbidden":
        return _unknown_key(entry)
    if kind == "literal_error":
        known = [word.strip("'") for word in context["expected"].replace(" or ", ", ").split(", ")]
        return f"must be {_either(known)}{shown}{did_you_mean(value, known)}"
    words = [_word(each) for each in entry.choice]
    if kind == "union_tag_not_found":
        return f"is required: {_either(words)}"
    if kind == "union_tag_invalid":
        return f"must be {_either(words)}{shown}{did_you_mean(value, words)}"
    if kind == "too_short":
        if entry.section.by_key()[str(entry.location[-1])].is_required():
            return "needs at least one entry"
        return "must not be empty; leave the key out for all"
    if kind in _LIMITS:
        [limit] = context.values()
        return f"{_LIMITS[kind]} {limit:.10g}{shown}"
    if kind == "value_error":
        return str(context["error"])
    wanted = _WANTED.get(kind, detail["msg"])
    if words:
        wanted += f" with the key type ({_either(words)})"
    return wanted + shown + _cure(kind, value)


def _shown(value: Any) -> str:
    if isinstance(value, Interpolated):
        return ", which the environment's value is not"
    if isinstance(value, str) and ("://" in value or "@" in value):
        return ""  # a connection string under the wrong key
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


def _either(known: Iterable[str]) -> str:
    *most, last = known
    return f"{', '.join(most)} or {last}" if most else last


def _unknown_key(entry: _Entry) -> str:
    key, known = entry.location[-1], entry.section.by_key()
    for other in entry.types:
        if key in other.by_key():
            return f"belongs to type: {_word(other)}, not to type: {_word(entry.section)}"
    close = did_you_mean(key, known)
    return f"is not a known key{close or '; known here: ' + ', '.join(known)}"


def _entry_of(location: tuple[str | int, ...], model: type[Section]) -> _Entry:
    """The entry with a Pydantic error. Pydantic's location also contains the types of sections."""
    entry = _Entry()
    here: Any = model
    sections = _sections(here)
    for part in location:
        if part == "[key]":
            break
        if len(sections) > 1:
            entry.types = sections
            sections = [each for each in sections if _word(each) == part]
            continue
        entry.location += (part,)
        if sections:
            [entry.section] = sections
            if entry.section not in entry.types:
                entry.types = ()
            known = entry.section.by_key().get(str(part))
            here = known.annotation if known else None
        else:  # a list, or a mapping of names, perhaps of mappings
            while get_origin(here) is Annotated:
                here = get_args(here)[0]
            inner = get_args(here)
            here = next((each for each in inner if _sections(each)), inner[-1] if inner else None)
        sections = _sections(here)
    entry.choice = sections if len(sections) > 1 else ()
    return entry


def _word(section: type[Section]) -> str:
    """The value of the key ``type`` that selects this section."""
    return str(get_args(section.model_fields["type"].annotation)[0])


def _sections(annotation: Any) -> list[type[Section]]:
    """The types of section that a value may have; none for a list or a mapping of sections."""
    if isinstance(annotation, type):
        return [annotation] if issubclass(annotation, Section) else []
    if get_origin(annotation) in (Annotated, Union, UnionType):
        return [found for each in get_args(annotation) for found in _sections(each)]
    return []
