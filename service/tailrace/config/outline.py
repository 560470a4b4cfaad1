"""What the models say of each place in the file, from their JSON schema."""

from dataclasses import dataclass, field
from typing import Any

from tailrace.config.document import Location
from tailrace.config.settings import Settings

Node = dict[str, Any]
"""A part of the schema."""


@dataclass(slots=True)
class Place:
    """A place in the file: the key's own schema, and that of the mapping or list around it."""

    location: Location
    node: Node
    section: Node
    type: str = ""
    """The type of the section, of those in ``types``, where there are several."""
    types: dict[str, Node] = field(default_factory=dict)


def outline() -> Node:
    """The schema of the models, each reference replaced, and ``null`` left out.

    A section's own description stands under ``about``, that of its key under ``description``.
    """
    schema = Settings.model_json_schema()
    definitions = schema.pop("$defs")

    def inlined(node: Any) -> Any:
        if isinstance(node, list):
            return [inlined(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            named = definitions[node["$ref"].rpartition("/")[2]]
            node = {**named, "about": named["description"], **node}
        if "anyOf" in node:
            node = {**inlined(node["anyOf"][0]), **node}
        return {key: inlined(node[key]) for key in node if key not in ("$ref", "anyOf")}

    whole: Node = inlined(schema)
    return whole


def types_of(node: Node) -> dict[str, Node]:
    """The schemas of a section of several types; none where it has one."""
    kinds = node["oneOf"] if "discriminator" in node else ()
    return {kind["properties"]["type"]["const"]: kind for kind in kinds}


def content(node: Node) -> Node:
    """The schema of what a list or a mapping of names holds; empty for anything else."""
    inner = node.get("items") or node.get("additionalProperties")
    return inner if isinstance(inner, dict) else {}


def place_of(location: tuple[str | int, ...], schema: Node) -> Place:
    """The place of an error of pydantic's, whose location also names the types of sections."""
    place, here = Place((), schema, {}), schema
    for part in location:
        if part == "[key]":
            break
        if "discriminator" in here:
            place.type, place.types = str(part), types_of(here)
            here = place.types[place.type]
            continue
        if here is not place.types.get(place.type):
            place.type, place.types = "", {}
        place.location += (part,)
        place.section = here
        place.node = here = (
            here["properties"].get(part, {}) if "properties" in here else content(here)
        )
    if "discriminator" in here:
        place.type, place.types = "", types_of(here)
    return place
