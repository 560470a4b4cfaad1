"""The reference of the configuration as Markdown, from what the models say.

``python -m tailrace.config.reference > docs/configuration.md``
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tailrace.config.settings import Settings

_HEAD = """\
# Configuration

<!-- Made by `python -m tailrace.config.reference > docs/configuration.md` from the docstrings of
`service/tailrace/config`. Edit those. -->

Which keys does the configuration file have, and what are their defaults?

`tailrace run --config FILE` reads one YAML 1.2 file (default: `config.yaml`, or what the
environment variable `TAILRACE_CONFIG` names). [`config.yaml`](../config.yaml) is an example with
every key. `tailrace check` reports every mistake of a file at once, each with its path and line,
and prints the effective configuration without secrets; `tailrace check --schema` prints a JSON
schema for editors.

- `${NAME}` and `${NAME:-default}` in any value are replaced by the environment variable `NAME`.
  The default also replaces an empty variable, and a key whose whole value is empty counts as left
  out. Inside `{ }` and `[ ]` such a value needs quotes. `$${` is a literal `${`.
- Unknown keys, keys that are given twice and values of another type are errors. A number in quotes
  is text.
- Units are in the names of the keys: `_seconds`, `_ms`, `_bytes`, `_hours`.
- A relative path is relative to the working directory of the process.
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
    schema = Settings.model_json_schema()
    return "\n".join([_HEAD, *_Page(schema["$defs"]).section("", schema)]) + "\n"


class _Page:
    def __init__(self, models: dict[str, Any]) -> None:
        self.models = models
        self.told: dict[str, str] = {}

    def section(self, path: str, model: dict[str, Any], level: int = 2) -> Iterator[str]:
        """The table of a section's own keys, and behind it the sections below it."""
        rows, below = [], []
        for key, node in model["properties"].items():
            place = f"{path}.{key}" if path else key
            inner, kinds = self._inner(node)
            if kinds or (inner and inner["title"] not in self.told):
                self.told.setdefault(inner.get("title", ""), place)
                below.append((place, node, inner, kinds))
            elif "const" not in node:  # which the heading says
                kind = f"as `{self.told[inner['title']]}`" if inner else _kind(node)
                default = _default(node, key in model.get("required", ()))
                rows.append(f"| `{key}` | {kind} | {default} | {_cell(node['description'])} |")
        if rows:
            yield from ("| key | value | default | meaning |", "|---|---|---|---|", *rows, "")
        for place, node, inner, kinds in below:
            many = "items" in node or "additionalProperties" in node
            name = f"{place}[]" if "items" in node else f"{place}.NAME" if many else place
            yield f"{'#' * level} `{name}`\n"
            yield f"{node['description'] if kinds or many else inner['description']}\n"
            if inner:
                yield from self.section(name, inner, level + 1)
            for word, kind in kinds.items():
                chooser = self._chooser(node)
                yield f"{'#' * (level + 1)} `{name}` with `{chooser}: {word}`\n"
                yield f"{kind['description']}\n"
                yield from self.section(name, kind, level + 2)

    def _inner(self, node: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The section that a key holds, or the kinds of section that it may hold."""
        node = self._content(node)
        if "discriminator" in node:
            mapping = node["discriminator"]["mapping"]
            words = {ref: word for word, ref in mapping.items()}
            return {}, {words[kind["$ref"]]: self._model(kind) for kind in node["oneOf"]}
        return (self._model(node) if "$ref" in node else {}), {}

    def _chooser(self, node: dict[str, Any]) -> str:
        return str(self._content(node)["discriminator"]["propertyName"])

    def _content(self, node: dict[str, Any]) -> dict[str, Any]:
        inner = node.get("items") or node.get("additionalProperties")
        node = inner if isinstance(inner, dict) else node
        found: dict[str, Any] = node["anyOf"][0] if "anyOf" in node else node
        return found

    def _model(self, node: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.models[node["$ref"].rpartition("/")[2]]
        return found


def _kind(node: dict[str, Any]) -> str:
    node = node["anyOf"][0] if "anyOf" in node else node
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


def _default(node: dict[str, Any], required: bool) -> str:
    if required:
        return "required"
    value = node.get("default")
    return "" if value is None else f"`{json.dumps(value).strip(chr(34))}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    print(reference(), end="")  # noqa: T201
