"""Adds the files that a configuration includes to its document.

Scopes and routes are joined in the order of the files, and handlers are put together. A handler, or
any other section, is given in one file only.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.config.document import Document, Location
from tailrace.config.interpolation import Unresolved
from tailrace.config.messages import path_of
from tailrace.errors import ConfigurationError, Problem

KEY = "include"

_LISTS = ("scopes", "routes")
_MAPPINGS = ("handlers",)

ReadFile = Callable[[str], Document]
"""The document of a file, whose data is a mapping. Raises ``ValueError`` if it cannot be read, and
:class:`ConfigurationError`."""


def include(whole: Document, source: str, read_file: ReadFile) -> None:
    """Adds to the document of the file ``source`` what its files say, and those that they include.

    A key in two files becomes a finding. Raises :class:`ConfigurationError` for a file that cannot
    be read, or that is included twice or by itself.
    """
    files = _Files(whole, read_file, {os.path.realpath(source): source})
    files.add_all(whole, source, (source,))


@dataclass(slots=True)
class _Files:
    whole: Document
    read_file: ReadFile
    seen: dict[str, str]
    """By real path, the file that includes it."""
    homes: dict[Location, str] = field(default_factory=dict)
    """By section, or by handler, where it is given."""

    def add_all(self, document: Document, source: str, chain: tuple[str, ...]) -> None:
        """Adds the files that the document of ``source`` includes. ``chain``: how it was found."""
        if not self.homes:
            for location in _locations(document.data):
                self.homes[location] = source or "the file"
        for location, name in _names(document, source):
            file = os.path.join(os.path.dirname(source), name)
            real = os.path.realpath(file)
            if real in map(os.path.realpath, chain):
                message = f"{' includes '.join([*chain, file])}: a file cannot include itself"
                raise _refused(document, location, message, source, chain[0])
            if real in self.seen:
                message = f"{file} is included by {self.seen[real]} already"
                raise _refused(document, location, message, source, chain[0])
            self.seen[real] = source
            try:
                included = self.read_file(file)
            except ValueError as error:
                message = f"{file}: {error}"
                raise _refused(document, location, message, source, chain[0]) from None
            self._add(included, file)
            self.add_all(included, file, (*chain, file))

    def _add(self, included: Document, file: str) -> None:
        moved = dict[Location, Location]()
        """Where the parts of the file are in the whole."""
        for location in _locations(included.data):
            section, *name = map(str, location)
            value = included.data[section]
            if location in self.homes and section not in _LISTS:
                lines = included.mark(location)[0], self.whole.mark(location)[0]
                message = f"is given in {self.homes[location]} (line {lines[1]})"
                self.whole.findings.append((location, f"{message} and in {file} (line {lines[0]})"))
                continue
            self.homes.setdefault(location, file)
            if name:
                self.whole.data.setdefault(section, {})[name[0]] = value[name[0]]
            elif section in _LISTS and isinstance(there := self.whole.data.get(section), list):
                for number, item in enumerate(value if isinstance(value, list) else [value]):
                    moved[section, number] = (section, len(there))
                    there.append(item)
                continue
            else:
                self.whole.data[section] = value
            moved[location] = location
        for here, there_ in moved.items():
            self.whole.files[there_] = file
            self.whole.marks |= {
                (*there_, *location[len(here) :]): mark
                for location, mark in included.marks.items()
                if location[: len(here)] == here
            }
        for location, message in included.findings:
            at = next((each for each in moved if location[: len(each)] == each), ())
            self.whole.findings.append(((*moved.get(at, ()), *location[len(at) :]), message))


def _locations(data: Mapping[str, Any]) -> Iterator[Location]:
    """The sections; of those that may be in several files, each part instead."""
    for section, value in data.items():
        if section in _MAPPINGS and isinstance(value, dict):
            yield from ((section, name) for name in value)
        elif section != KEY:
            yield (section,)


def _names(document: Document, source: str) -> Iterator[tuple[Location, str]]:
    """The files that a document includes, each with its location. Takes the key away."""
    given = document.data.pop(KEY, None)
    if given is not None and not isinstance(given, list):
        raise _refused(document, (KEY,), "must be a list of files", source, source)
    for number, name in enumerate(given or ()):
        if not isinstance(name, str) or not name:
            raise _refused(document, (KEY, number), "must be the path of a file", source, source)
        if not isinstance(name, Unresolved):
            yield (KEY, number), name


def _refused(
    document: Document, location: Location, message: str, file: str, source: str
) -> ConfigurationError:
    line = document.mark(location)[0]
    problem = Problem(path_of(location), message, line, "" if file == source else file)
    return ConfigurationError(problem, source=source)
