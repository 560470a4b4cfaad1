"""The reference of the configuration as Markdown, from what the models say.

``make reference`` writes docs/configuration.md.
"""

import json
from collections.abc import Iterator
from typing import Any

from tailrace.config.settings import model_of
from tailrace.handlers.types import BUILT_IN

Node = dict[str, Any]
"""A part of the JSON schema of the models."""

_HEAD = """\
# Configuration

<!-- Made by `make reference` from the docstrings of the settings' classes. Edit those. -->

Which keys does the configuration file have, and what are their defaults?

`tailrace run --config FILE` reads one YAML 1.2 file (default: `config.yaml`, or what the
environment variable `TAILRACE_CONFIG` names). [`config.yaml`](../config.yaml) is an example with
every key. `tailrace check` reports every mistake of a file at once, each with its path and line,
and prints the effective configuration without secrets; `tailrace check --schema` prints a JSON
schema for editors.

- `${NAME}` and `${NAME:-default}` in any value are replaced by the environment variable `NAME`.
  The default is plain text and also replaces an empty variable. A key whose whole value is empty
  counts as left out. Inside `{ }` and `[ ]` such a value needs quotes. `$${` is a literal `${`.
- Unknown keys, keys that are given twice and values of another type are errors. A number in quotes
  is text.
- Units are in the names of the keys: `_seconds`, `_ms`, `_bytes`, `_hours`.
- A relative path is relative to the working directory of the process, except those of `include`.
- A message about an included file names it beside the line; the numbers in `scopes[3]` and
  `routes[3]` count in the joined lists.
"""

_WORDS = {
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "string": "text",
    "array": "list",
    "object": "mapping",
}
_BOUNDS = {"exclusiveMinimum": "> ", "minimum": "≥ ", "maximum": "≤ "}
_UNBOUNDED = 2**31 - 1


def reference() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_section("", _outline(), 2, {})]) + "\n"


def _section(path: str, model: Node, level: int, described: dict[str, str]) -> Iterator[str]:
    """The table of a section's keys, then the sections below it but those in ``described``."""
    rows, below = [], []
    for key, node in model["properties"].items():
        place = f"{path}.{key}" if path else key
        inner = _content(node) or node
        if "discriminator" in inner or "properties" in inner:
            title = inner.get("title", place)
            if title not in described:
                described[title] = place
                below.append((place, node, inner))
                continue
            value = f"as `{described[title]}`"
        else:
            value = _value(node)
        if "const" not in node:  # the heading names it
            default = _default(node, key in model.get("required", ()))
            text = " ".join(node["description"].split()).replace("|", "\\|")
            rows.append(f"| `{key}` | {value} | {default} | {text} |")
    if rows:
        yield from ("| key | value | default | meaning |", "|---|---|---|---|", *rows, "")
    for place, node, inner in below:
        name = f"{place}[]" if "items" in node else place
        name = f"{place}.NAME" if "additionalProperties" in node and inner is not node else name
        yield f"{'#' * level} `{name}`\n"
        yield f"{inner.get('about') or node['description']}\n"
        types = _types_of(inner)
        for word, kind in types.items():
            yield f"{'#' * (level + 1)} `{name}` with `type: {word}`\n"
            yield f"{kind['about']}\n"
            yield from _section(name, kind, level + 2, described)
        if not types:
            yield from _section(name, inner, level + 1, described)


def _outline() -> Node:
    """The schema of the models, each reference replaced, and ``null`` left out.

    A section's own description stands under ``about``, that of its key under ``description``.
    """
    schema = model_of(each.settings for each in BUILT_IN.values()).model_json_schema()
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


def _types_of(node: Node) -> dict[str, Node]:
    """The schemas of a section of several types; none where it has one."""
    kinds = node["oneOf"] if "discriminator" in node else ()
    return {kind["properties"]["type"]["const"]: kind for kind in kinds}


def _content(node: Node) -> Node:
    """The schema of what a list or a mapping of names holds; empty for anything else."""
    inner = node.get("items") or node.get("additionalProperties")
    return inner if isinstance(inner, dict) else {}


def _value(node: Node) -> str:
    if "const" in node:
        return f"`{node['const']}`"
    if "enum" in node:
        return ", ".join(f"`{word}`" for word in node["enum"])
    word = _WORDS.get(node.get("type", ""), "anything")
    bounds = [
        f"{sign}{node[key]:g}"
        for key, sign in _BOUNDS.items()
        if key in node and node[key] != _UNBOUNDED
    ]
    return " ".join([word, ", ".join(bounds)]).strip()


def _default(node: Node, required: bool) -> str:
    if required:
        return "required"
    value = node.get("default")
    return "" if value is None else f"`{json.dumps(value).strip(chr(34))}`"


if __name__ == "__main__":
    print(reference(), end="")
