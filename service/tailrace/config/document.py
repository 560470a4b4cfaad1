"""From the text of the file to plain data: YAML 1.2 with the variables put in, and its positions.

ruamel.yaml composes the nodes and reads the scalars; the data is built here, because every problem
is wanted at once and with its place. What a key means is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.config.interpolation import Interpolated, Unresolved, interpolate
from tailrace.errors import ConfigurationError, Problem

LIMIT = 100_000
"""Values in one file, aliases counted as often as they are used: a bound for alias bombs."""

DEPTH = 100
"""Levels of nesting; BSON on the server has no more than 200."""

INT64 = range(-(2**63), 2**63)
"""What BSON can hold."""

Location = tuple[str | int, ...]
Finding = tuple[Location, str]
"""What is wrong, and where."""

_YAML = "tag:yaml.org,2002:"
_TEXT = {_YAML + name for name in ("str", "merge", "value")}
_SCALARS = {_YAML + name for name in ("int", "float", "bool", "null", "timestamp")}


@dataclass(slots=True)
class Document:
    """Plain data, what was wrong while building it, and the line and column of everything."""

    data: Any
    findings: list[Finding] = field(default_factory=list)
    marks: dict[Location, tuple[int, int]] = field(default_factory=dict)

    def mark(self, location: Location) -> tuple[int, int]:
        """Line and column, from 1; those of the parent for what is not in the file."""
        while location and location not in self.marks:
            location = location[:-1]
        return self.marks.get(location, (0, 0))


def read(text: str, environ: Mapping[str, str], source: str = "") -> Document:
    """The data of a YAML text.

    Raises :class:`ConfigurationError` where the text is not YAML; anything less is among the
    document's findings.
    """
    from ruamel.yaml import YAML  # 20 ms, which those who load no file need not spend
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    yaml = YAML(typ="safe", pure=True)
    builder = _Builder(yaml, environ)
    try:
        node = yaml.compose(text)
        message = "the file is empty"
        if node is not None:
            builder.document.data = builder.build(node, ())
            return builder.document
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        words = " ".join(part for part in (error.context, error.problem) if part)
        message = f"{where}not YAML: {words}{_hint(text, words, mark)}"
    except RecursionError:
        message = "nested too deeply"
    except _TooLargeError:
        message = f"more than {LIMIT} values: is an alias used inside its own anchor?"
    except (YAMLError, ValueError, OverflowError) as error:  # such as an escape "\UFFFFFFFF"
        message = f"not YAML: {' '.join(str(error).split())}"
    raise ConfigurationError(Problem("", message), source=source) from None


def _hint(text: str, words: str, mark: Any) -> str:
    lines = text.splitlines()
    line = lines[mark.line] if mark and mark.line < len(lines) else ""
    if "${" in line:
        return "; put a value with ${…} in quotes inside { } or [ ], or where it holds ': ' or ' #'"
    return "; indent with spaces, not with tabs" if "'\\t'" in words else ""


class _TooLargeError(Exception):
    """The data has more values than a configuration ever has."""


class _Builder:
    """Builds data from nodes and notes what is wrong on the way."""

    def __init__(self, yaml: Any, environ: Mapping[str, str]) -> None:
        self.yaml = yaml
        self.environ = environ
        self.document = Document(None)
        self.above: list[Any] = []
        self.count = 0

    def note(self, location: Location, message: str) -> Unresolved:
        self.document.findings.append((location, message))
        return Unresolved()

    def build(self, node: Any, location: Location) -> Any:
        self.count += 1
        if self.count > LIMIT:
            raise _TooLargeError
        if len(location) > DEPTH:
            return self.note(location[:1], "nested too deeply")
        mark = (node.start_mark.line + 1, node.start_mark.column + 1)
        self.document.marks.setdefault(location, mark)
        if isinstance(node.value, str):
            return self._scalar(node, location)
        if any(node is outer for outer in self.above):
            return self.note(location, "an alias is used inside its own anchor")
        if str(node.tag) not in (_YAML + "map", _YAML + "seq"):
            return self._unknown_tag(node, location)
        self.above.append(node)
        try:
            if node.tag == _YAML + "map":
                return self._mapping(node, location)
            return [self.build(item, (*location, i)) for i, item in enumerate(node.value)]
        finally:
            self.above.pop()

    def _unknown_tag(self, node: Any, location: Location) -> Unresolved:
        tag = str(node.tag).replace(_YAML, "!!")
        return self.note(location, f"the tag {tag} is not known here; leave it out")

    def _scalar(self, node: Any, location: Location) -> Any:
        tag = str(node.tag)
        if tag not in _TEXT | _SCALARS:
            return self._unknown_tag(node, location)
        text = interpolate(node.value, self.environ, lambda told: self.note(location, told))
        if isinstance(text, Interpolated):
            text.unquoted = node.style is None
            text.value = self._from_environment(text) if text.whole else str(text)
        if isinstance(text, Interpolated | Unresolved) or tag in _TEXT:
            return text
        try:
            return self._read(node)
        except (ValueError, KeyError) as error:
            name = tag.removeprefix(_YAML)
            return self.note(location, f"is no {name} ({error}); put it in quotes if it is text")

    def _read(self, node: Any) -> Any:
        value = self.yaml.constructor.construct_object(node)
        if isinstance(value, int) and value not in INT64:
            raise ValueError("it does not fit into 64 bits")
        return value

    def _from_environment(self, text: str) -> Any:
        """What the variable stands for where no text is wanted: what it would be in the file."""
        from ruamel.yaml.nodes import ScalarNode

        tag = self.yaml.resolver.resolve(ScalarNode, text, (True, False))
        try:
            return self._read(ScalarNode(tag, str(text))) if str(tag) in _SCALARS else str(text)
        except (ValueError, KeyError):
            return str(text)

    def _mapping(self, node: Any, location: Location) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, value in node.value:
            name = key.value if isinstance(key.value, str) else "?"
            place, line = (*location, name), key.start_mark.line + 1
            if name in own:
                self.note(place, f"is given again in line {line}")
                continue
            self.document.marks.setdefault(place, (line, key.start_mark.column + 1))
            if str(key.tag) == _YAML + "merge":
                merged = {**self._merged(value, place), **merged}
            elif str(key.tag) not in _TEXT:
                self.note(place, "a key must be text; put it in quotes")
            else:
                own[name] = self.build(value, place)
        return {**merged, **own}

    def _merged(self, node: Any, location: Location) -> dict[str, Any]:
        """The mapping or mappings behind ``<<``; of several, the earlier wins."""
        value = self.build(node, location)
        found: dict[str, Any] = {}
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                found = {**item, **found}
            elif not isinstance(item, Unresolved):
                self.note(location, "takes a mapping, or a list of mappings")
        return found
