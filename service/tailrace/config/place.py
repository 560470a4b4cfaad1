"""What the models say of a place in the file."""

from dataclasses import dataclass, field
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from tailrace.config.document import Location
from tailrace.config.fields import Section
from tailrace.config.settings import Settings

Types = dict[str, type[Section]]
"""Sections by the value of their key ``type``; none where there is only one."""


@dataclass(slots=True)
class Place:
    """A place in the file, the section around it, and the types that this section may have."""

    location: Location = ()
    section: type[Section] = Settings
    types: Types = field(default_factory=dict)
    choice: Types = field(default_factory=dict)
    """The types of the section that stands at the place itself."""


def place_of(location: tuple[str | int, ...]) -> Place:
    """The place of an error of pydantic's, whose location also names the types of sections."""
    place = Place()
    here: Any = Settings
    sections: list[type[Section]] = _sections(here)
    for part in location:
        if part == "[key]":
            break
        if len(sections) > 1:
            place.types = _by_type(sections)
            sections = [place.types[str(part)]]
            continue
        place.location += (part,)
        if sections:
            [place.section] = sections
            if place.section not in place.types.values():
                place.types = {}
            known = place.section.by_key().get(str(part))
            here = known.annotation if known else None
        else:  # a list, or a mapping of names
            here = next((each for each in get_args(here) if _sections(each)), None)
        sections = _sections(here)
    place.choice = _by_type(sections) if len(sections) > 1 else {}
    return place


def _by_type(sections: list[type[Section]]) -> Types:
    return {get_args(each.model_fields["type"].annotation)[0]: each for each in sections}


def _sections(annotation: Any) -> list[type[Section]]:
    """The sections that a value may be; none for a list or a mapping of them."""
    if isinstance(annotation, type):
        return [annotation] if issubclass(annotation, Section) else []
    if get_origin(annotation) in (Annotated, Union, UnionType):
        return [found for each in get_args(annotation) for found in _sections(each)]
    return []
