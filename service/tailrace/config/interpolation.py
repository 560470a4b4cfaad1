"""``${NAME}`` and ``${NAME:-default}`` inside the values of the file.

As in a shell: the default also stands in for an empty variable, and may itself hold an
interpolation. ``$${`` is a literal ``${``; a ``$`` before anything else is just a dollar, so that
aggregation expressions (``$match``, ``$$ROOT``) need no care.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

_MARK = re.compile(r"\$\$\{|\$\{|\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Interpolated(str):
    """Text that came, in whole or in part, from the environment.

    ``whole`` says that it was exactly one interpolation; ``value`` is then what YAML would read in
    its place, for keys that want no text, and ``unquoted`` whether it stood there without quotes.
    Messages never show any of it: it may be a secret in the wrong place.
    """

    __slots__ = ("unquoted", "value", "whole")

    whole: bool
    unquoted: bool
    value: Any


class Unresolved(str):
    """Stands where a value could not be read, which has been reported already."""

    __slots__ = ()


def interpolate(text: str, environ: Mapping[str, str], report: Callable[[str], object]) -> str:
    """The text with every variable put in; unchanged where it holds none."""
    if "${" not in text:
        return text
    reader = _Reader(text, environ)
    try:
        result, _ = reader.read(0)
    except ValueError as error:
        reader.problems.append(str(error))
    for message in reader.problems:
        report(message)
    if reader.problems:
        return Unresolved(text)
    if not reader.spans:
        return result
    value = Interpolated(result)
    value.whole = (0, len(text)) in reader.spans
    value.unquoted, value.value = True, result
    return value


class _Reader:
    """Reads one text from left to right; ``ValueError`` where the syntax is wrong."""

    def __init__(self, text: str, environ: Mapping[str, str]) -> None:
        self.text = text
        self.environ = environ
        self.spans: list[tuple[int, int]] = []
        self.problems: list[str] = []

    def read(self, position: int, closing: str = "", wanted: bool = True) -> tuple[str, int]:
        """The text to its end, or to the ``}`` that closes the variable ``closing``; and where.

        A variable that is not ``wanted`` (in a default that is not used) may be unset.
        """
        parts: list[str] = []
        while mark := _MARK.search(self.text, position):
            parts.append(self.text[position : mark.start()])
            position = mark.end()
            if mark[0] == "${":
                value, position = self._variable(mark.start(), wanted)
                parts.append(value)
            elif mark[0] == "}" and closing:
                return "".join(parts), position
            else:
                parts.append(mark[0].replace("$$", "$"))
        if closing:
            raise ValueError(
                f"the interpolation of {closing} is not closed: '}}' is missing "
                "(quote the whole value if it holds ' #' or ': ')"
            )
        return "".join([*parts, self.text[position:]]), len(self.text)

    def _variable(self, start: int, wanted: bool) -> tuple[str, int]:
        """The value of the interpolation at ``start`` and where it ends."""
        match = _NAME.match(self.text, start + 2)
        if not match:
            raise ValueError(
                "'${' needs the name of a variable, as in ${NAME} or ${NAME:-default}; "
                "write $${ for a literal '${'"
            )
        name, end = match[0], match.end()
        value, default = self.environ.get(name), ""
        if self.text.startswith(":-", end):
            default, end = self.read(end + 2, name, wanted and not value)
        elif self.text.startswith("}", end):
            end += 1
            if value is None and wanted:
                self.problems.append(
                    f"the environment variable {name} is not set; "
                    f"set it, or give a default as in ${{{name}:-default}}"
                )
        else:
            raise ValueError(
                f"cannot read the interpolation of {name}: only ${{{name}}} and "
                f"${{{name}:-default}} are known, and '}}' must close it "
                "(quote the whole value if it holds ' #' or ': ')"
            )
        self.spans.append((start, end))
        return value or default, end
