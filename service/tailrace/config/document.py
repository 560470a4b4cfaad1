"""Reads YAML 1.2 into plain data, replaces variables, and notes the position of each value.

ruamel.yaml parses the text and reads the scalars. This module builds the data, so that every
problem is reported at once, each with its path and line.
"""

from collections.abc import Mapping
from typing import Any

from tailrace.config.interpolation import Interpolated, Unresolved, interpolate
from tailrace.errors import ConfigurationError, Problem

LIMIT = 100_000
"""The largest number of values in a file. Each use of an alias counts: this stops alias bombs."""

DEPTH = 100
"""The deepest nesting. The server's limit for BSON is 200."""

INT64 = range(-(2**63), 2**63)
"""The integers that BSON can store."""

Location = tuple[str | int, ...]
Finding = tuple[Location, str]
"""A location, and what is wrong there."""

_YAML = "tag:yaml.org,2002:"
_TEXT = {_YAML + name for name in ("str", "merge", "value")}
_KNOWN = _TEXT | {
    _YAML + name for name in ("map", "seq", "int", "float", "bool", "null", "timestamp")
}


class Document:
    """Plain data, its problems, and the line and column of each value."""

    def __init__(self, yaml: Any, environ: Mapping[str, str]) -> None:
        self.data: Any = None
        self.findings: list[Finding] = []
        self.marks: dict[Location, tuple[int, int]] = {}
        self.files: dict[Location, str] = {}
        """The included file of each location that comes from one, and of what is below it."""
        self._yaml = yaml
        self._environ = environ
        self._count = 0

    def mark(self, location: Location) -> tuple[int, int]:
        """Line and column, from 1; the parent's if the location itself is not in the file."""
        while location and location not in self.marks:
            location = location[:-1]
        return self.marks.get(location, (0, 0))

    def file(self, location: Location) -> str:
        """The included file that has the location; empty for the configuration itself."""
        while location and location not in self.files:
            location = location[:-1]
        return self.files.get(location, "")

    def _note(self, location: Location, message: str) -> Unresolved:
        self.findings.append((location, message))
        return Unresolved()

    def build(self, node: Any, location: Location) -> Any:
        self._count += 1
        if self._count > LIMIT:
            raise ValueError(f"more than {LIMIT} values")
        if len(location) > DEPTH:
            return self._note(location[:1], "nested too deeply, or an alias inside its own anchor")
        self.marks.setdefault(location, (node.start_mark.line + 1, node.start_mark.column + 1))
        if str(node.tag) not in _KNOWN:
            tag = str(node.tag).replace(_YAML, "!!")
            return self._note(location, f"the tag {tag} is not known here; leave it out")
        if isinstance(node.value, str):
            return self._scalar(node, location)
        if node.id == "mapping":
            return self._mapping(node, location)
        return [self.build(item, (*location, i)) for i, item in enumerate(node.value)]

    def _scalar(self, node: Any, location: Location) -> Any:
        if "${" in node.value:
            return self._interpolated(node, location)
        if str(node.tag) in _TEXT:
            return node.value
        try:
            return self._read(node)
        except (ValueError, KeyError) as error:
            name = str(node.tag).removeprefix(_YAML)
            message = f"cannot be read as {name} ({error}); put it in quotes if it is text"
            return self._note(location, message)

    def _interpolated(self, node: Any, location: Location) -> str:
        from ruamel.yaml.nodes import ScalarNode

        text, problems = interpolate(node.value, self._environ)
        for problem in problems:
            self._note(location, problem)
        if problems:
            return Unresolved()
        interpolated = Interpolated(text)
        interpolated.quoted = node.style is not None
        try:
            tag = self._yaml.resolver.resolve(ScalarNode, text, (True, False))
            interpolated.value = self._read(ScalarNode(tag, text))
        except (ValueError, KeyError):
            interpolated.value = text
        return interpolated

    def _read(self, node: Any) -> Any:
        value = self._yaml.constructor.construct_object(node)
        if isinstance(value, int) and value not in INT64:
            raise ValueError("it does not fit into 64 bits")
        return value

    def _mapping(self, node: Any, location: Location) -> dict[str, Any]:
        self._yaml.constructor.flatten_mapping(node)
        merged = len(node.merge or ())  # keys from << come first; the mapping's own keys override
        mapping: dict[str, Any] = {}
        own: set[str] = set()
        for number, (key, value) in enumerate(node.value):
            name = key.value if isinstance(key.value, str) else "?"
            inner, line = (*location, name), key.start_mark.line + 1
            if name in own:
                self._note(inner, f"is given again in line {line}")
                continue
            if number >= merged:
                own.add(name)
                self.marks[inner] = (line, key.start_mark.column + 1)
            if str(key.tag) not in _TEXT:
                self._note(inner, "a key must be text; put it in quotes")
            else:
                mapping[name] = self.build(value, inner)
        return mapping


def read(text: str, environ: Mapping[str, str], source: str = "") -> Document:
    """The data of a YAML text. Raises :class:`ConfigurationError` if the text is not YAML."""
    from ruamel.yaml import YAML  # takes 20 ms, so commands without a file skip it
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    yaml = YAML(typ="safe", pure=True)
    document = Document(yaml, environ)
    try:
        node = yaml.compose(text)
        if node is not None:
            document.data = document.build(node, ())
            return document
        message = "the file is empty"
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        words = " ".join(part for part in (error.context, error.problem) if part)
        message = f"{where}not YAML: {words}{_hint(text, words, mark)}"
    except RecursionError:
        message = "nested too deeply"
    except (YAMLError, ValueError, OverflowError) as error:  # such as an escape "\UFFFFFFFF"
        message = f"not YAML: {' '.join(str(error).split())}"
    raise ConfigurationError(Problem("", message), source=source) from None


def _hint(text: str, words: str, mark: Any) -> str:
    lines = text.splitlines()
    line = lines[mark.line] if mark and mark.line < len(lines) else ""
    if "${" in line:
        return "; put a value with ${…} in quotes inside { } or [ ], or where it holds ': ' or ' #'"
    return "; indent with spaces, not with tabs" if "'\\t'" in words else ""
