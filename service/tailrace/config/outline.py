"""What the models say of a place in the file, read from their JSON schema."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tailrace.config.document import Location
from tailrace.config.settings import Settings

Node = dict[str, Any]
"""A part of the schema."""


@dataclass(slots=True)
class Place:
    """A place in the file, and what the schema says of it."""

    location: Location = ()
    node: Node = field(default_factory=dict)
    """The key itself, with its description."""

    section: Node = field(default_factory=dict)
    """The mapping or list around it."""

    chooser: str = ""
    """The key that tells the kind of the section, or of what stands here; where there are kinds."""

    kind: str = ""
    kinds: dict[str, Node] = field(default_factory=dict)

    @property
    def required(self) -> bool:
        return self.location[-1] in self.section.get("required", ())


class Outline:
    """The schema of the models, to walk through."""

    def __init__(self) -> None:
        self.schema = Settings.model_json_schema()

    def resolved(self, node: Any) -> Node:
        """The node, through references and past what may be left out."""
        while isinstance(node, dict):
            if "$ref" in node:
                node = self.schema["$defs"][node["$ref"].rpartition("/")[2]]
            elif "anyOf" in node:
                node = node["anyOf"][0]
            else:
                return node
        return {}

    def kinds(self, node: Node) -> tuple[str, dict[str, Node]]:
        """The key that tells the kind of a section, and the kinds; empty where there is one."""
        if "discriminator" not in node:
            return "", {}
        words = {ref: word for word, ref in node["discriminator"]["mapping"].items()}
        kinds = {words[kind["$ref"]]: self.resolved(kind) for kind in node["oneOf"]}
        return node["discriminator"]["propertyName"], kinds

    def content(self, node: Node) -> Node:
        """What a list or a mapping of names holds; empty for anything else."""
        return self.resolved(node.get("items") or node.get("additionalProperties"))

    def place(self, location: tuple[str | int, ...]) -> Place:
        """What stands where an error of pydantic's is: the part that names a kind is no key."""
        place, here = Place(node=self.schema), self.schema
        for part in location:
            if part == "[key]":
                break
            if "discriminator" in here:
                place.chooser, place.kinds = self.kinds(here)
                place.kind = str(part)
                here = place.kinds[place.kind]
                continue
            if here is not place.kinds.get(place.kind):
                place.chooser, place.kind, place.kinds = "", "", {}
            place.location += (part,)
            place.section = here
            if "properties" in here:
                place.node = here["properties"].get(part, {})
                here = self.resolved(place.node)
            else:
                place.node = here = self.content(here)
        if "discriminator" in here:
            place.kind, (place.chooser, place.kinds) = "", self.kinds(here)
        return place
