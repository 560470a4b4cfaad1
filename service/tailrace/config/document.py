"""From the text of the file to plain data: YAML, with the variables put in.

The data is built from YAML's node graph instead of by one of its constructors, because every
problem is wanted at once and with its path, duplicate keys are problems, and interpolation has
to know which scalars stood in quotes. What a key means is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from tailrace.config.interpolation import Interpolated, Unresolved, interpolate
from tailrace.config.paths import Location, path_of
from tailrace.config.scalars import resolve
from tailrace.errors import ConfigurationError, Problem

LIMIT = 100_000
"""Values in one file, aliases counted as often as they are used: a bound for alias bombs."""

_TAG = "tag:yaml.org,2002:"
_PLAIN = _TAG + "plain"
_READ_AS: dict[str, tuple[tuple[type, ...], str]] = {
    _TAG + "int": ((int,), "a whole number"),
    _TAG + "float": ((int, float), "a number"),
    _TAG + "bool": ((bool,), "true or false"),
    _TAG + "null": ((type(None),), "null"),
}


class _Loader(yaml.SafeLoader):
    """Composes nodes only; a plain scalar keeps a tag of its own, to be resolved later."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        if kind is ScalarNode:
            return _PLAIN if implicit[0] else _TAG + "str"
        return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]


@dataclass(slots=True)
class Document:
    """Plain data, what was wrong while building it, and the order in which things stand."""

    data: Any
    problems: list[tuple[Location, Problem]] = field(default_factory=list)
    order: dict[Location, int] = field(default_factory=dict)

    def position(self, location: Location) -> int:
        """A number that grows along the file; that of the parent for what is not in the file."""
        while location and location not in self.order:
            location = location[:-1]
        return self.order.get(location, 0)


DEPTH = 100
"""Levels of nesting; BSON on the server has no more than 200."""


def read(text: str, environ: Mapping[str, str], source: str = "") -> Document:
    """The data of a YAML text.

    Raises :class:`ConfigurationError` where the text is not YAML; anything less is among the
    document's problems.
    """
    node = _compose(text, source)
    if node is None:
        raise ConfigurationError(Problem("", "the file is empty"), source=source)
    builder = _Builder(environ)
    document = builder.document
    try:
        document.data = builder.build(node, ())
    except _TooLargeError:
        problem = Problem("", f"more than {LIMIT} values: is an alias used inside its own anchor?")
        raise ConfigurationError(problem, source=source) from None
    return document


def _compose(text: str, source: str) -> Node | None:
    loader: _Loader | None = None
    try:
        loader = _Loader(text)
        return loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = " ".join(part for part in (error.context, error.problem) if part)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = Problem("", f"{where}not YAML: {message}{_hint(text, error, mark)}")
    except yaml.YAMLError as error:
        problem = Problem("", f"not YAML: {' '.join(str(error).split())}")
    except RecursionError:
        problem = Problem("", "nested too deeply")
    except (ValueError, OverflowError) as error:  # an escape such as "\UFFFFFFFF"
        problem = Problem("", f"not YAML: {error}")
    finally:
        if loader is not None:
            loader.dispose()
    raise ConfigurationError(problem, source=source) from None


def _hint(text: str, error: yaml.MarkedYAMLError, mark: yaml.Mark | None) -> str:
    lines = text.splitlines()
    line = lines[mark.line] if mark and mark.line < len(lines) else ""
    if "${" in line:
        return "; put a value with ${…} in quotes inside { } or [ ], or where it holds ': ' or ' #'"
    if "'\\t'" in (error.problem or ""):
        return "; indent with spaces, not with tabs"
    return ""


class _TooLargeError(Exception):
    """The data has more values than a configuration ever has."""


class _Builder:
    """Builds data from nodes and notes the problems on the way."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.document = Document(None)
        self.above: set[int] = set()
        self.count = 0

    def note(self, location: Location, message: str) -> None:
        self.document.problems.append((location, Problem(path_of(location), message)))

    def build(self, node: Node, location: Location) -> Any:
        self.count += 1
        if self.count > LIMIT:
            raise _TooLargeError
        if len(location) > DEPTH:
            self.note(location[:1], "nested too deeply")
            return Unresolved()
        self.document.order.setdefault(location, self.count)
        if isinstance(node, ScalarNode):
            return self._scalar(node, location)
        if id(node) in self.above:
            self.note(location, "an alias is used inside its own anchor")
            return Unresolved()
        self.above.add(id(node))
        try:
            if isinstance(node, MappingNode) and node.tag == _TAG + "map":
                return self._mapping(node, location)
            if isinstance(node, SequenceNode) and node.tag == _TAG + "seq":
                return [self.build(item, (*location, i)) for i, item in enumerate(node.value)]
        finally:
            self.above.discard(id(node))
        return self._unknown_tag(node, location)

    def _unknown_tag(self, node: Node, location: Location) -> Unresolved:
        tag = node.tag.replace(_TAG, "!!")
        self.note(location, f"the tag {tag} is not known here; leave it out")
        return Unresolved()

    def _scalar(self, node: ScalarNode, location: Location) -> Any:
        def report(message: str) -> None:
            self.note(location, message)

        text = interpolate(node.value, self.environ, report, plain=node.tag == _PLAIN)
        if isinstance(text, Unresolved) or (isinstance(text, Interpolated) and node.tag == _PLAIN):
            return text
        if node.tag == _TAG + "str":
            return text
        try:
            if node.tag == _PLAIN:
                return resolve(text)
            if node.tag in _READ_AS:
                kind, name = _READ_AS[node.tag]
                value = resolve(text)
                if not isinstance(value, kind) or (isinstance(value, bool) and bool not in kind):
                    raise ValueError(f"must be {name}, as its tag says")
                return value
        except ValueError as error:
            report(str(error))
            return Unresolved(text)
        return self._unknown_tag(node, location)

    def _mapping(self, node: MappingNode, location: Location) -> dict[str, Any]:
        own: dict[str, Any] = {}
        lines: dict[str, int] = {}
        merged: dict[str, Any] = {}
        for key, value in node.value:
            name = self._key(key, location)
            if name is None:
                continue
            line = key.start_mark.line + 1
            if name == "<<" and key.tag == _PLAIN:
                for key_of_merged, item in self._merged(value, location).items():
                    merged.setdefault(key_of_merged, item)
            elif name in own:
                first = lines[name]
                self.note((*location, name), f"given twice, in line {first} and in line {line}")
            else:
                lines[name] = line
                own[name] = self.build(value, (*location, name))
        return {**merged, **own}

    def _key(self, key: Node, location: Location) -> str | None:
        line = key.start_mark.line + 1
        if not isinstance(key, ScalarNode):
            self.note(location, f"the key in line {line} must be a word, not a list or mapping")
            return None
        try:
            name = resolve(key.value) if key.tag == _PLAIN else key.value
        except ValueError:
            name = None
        if not isinstance(name, str):
            self.note(location, f"the key {key.value!r} in line {line} must be text; quote it")
            return None
        return name

    def _merged(self, node: Node, location: Location) -> dict[str, Any]:
        """The mapping or mappings behind ``<<``; of several, the earlier wins."""
        value = self.build(node, (*location, "<<"))
        found: dict[str, Any] = {}
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                found = {**item, **found}
            elif not isinstance(item, Unresolved):
                self.note(location, "'<<' takes a mapping, or a list of mappings")
        return found
