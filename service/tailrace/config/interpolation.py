"""``${NAME}`` and ``${NAME:-default}`` inside the values of the file.

As in a shell: the default also stands in for an empty variable, and may itself hold an
interpolation. ``$${`` is a literal ``${``; a ``$`` before anything else is just a dollar, so that
aggregation expressions (``$match``, ``$$ROOT``) need no care.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

Report = Callable[[str], None]
"""Takes the message of one problem."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MARK = re.compile(r"\$\$\{|\$\{")
_MARK_OR_END = re.compile(r"\$\$\{|\$\{|\}")


class Interpolated(str):
    """Text that came, in whole or in part, from the environment.

    ``whole`` says that the value was exactly one interpolation: only then may it become a number
    or a boolean. ``plain`` says that it stood there without quotes. Messages never show the text:
    it may be a secret in the wrong place.
    """

    __slots__ = ("plain", "whole")

    whole: bool
    plain: bool

    @classmethod
    def of(cls, text: str, *, whole: bool, plain: bool) -> Interpolated:
        """The text with where it came from."""
        value = cls(text)
        value.whole, value.plain = whole, plain
        return value


class Unresolved(str):
    """Stands where an interpolation failed, which has been reported already."""

    __slots__ = ()


def interpolate(text: str, environ: Mapping[str, str], report: Report, *, plain: bool) -> str:
    """The text with every variable put in; unchanged where it holds none."""
    if "${" not in text:
        return text
    try:
        reader = _Reader(text, environ)
        result = reader.until_end()
    except ValueError as error:
        report(str(error))
        return Unresolved(text)
    for message in reader.unset:
        report(message)
    if reader.unset:
        return Unresolved(text)
    if not reader.variables:
        return result
    return Interpolated.of(result, whole=reader.whole, plain=plain)


class _Reader:
    """Reads one text from left to right; ``ValueError`` where the syntax is wrong."""

    def __init__(self, text: str, environ: Mapping[str, str]) -> None:
        self.text = text
        self.environ = environ
        self.variables = 0
        self.whole = False
        self.unset: list[str] = []

    def until_end(self) -> str:
        parts: list[str] = []
        position = 0
        while mark := _MARK.search(self.text, position):
            parts.append(self.text[position : mark.start()])
            if mark[0] == "$${":
                parts.append("${")
                position = mark.end()
                continue
            value, position = self._variable(mark.start(), wanted=True)
            self.whole = mark.start() == 0 and position == len(self.text)
            parts.append(value)
        parts.append(self.text[position:])
        return "".join(parts)

    def _variable(self, start: int, *, wanted: bool) -> tuple[str, int]:
        """The value of the interpolation at ``start`` and where it ends.

        One that is not ``wanted`` (in a default that is not used) may be unset.
        """
        self.variables += 1
        name = _NAME.match(self.text, start + 2)
        if not name:
            raise ValueError(
                "'${' needs the name of a variable, as in ${NAME} or ${NAME:-default}; "
                "write $${ for a literal '${'"
            )
        value = self.environ.get(name[0])
        position = name.end()
        if self.text.startswith("}", position):
            if value is None and wanted:
                self.unset.append(
                    f"the environment variable {name[0]} is not set; "
                    f"set it, or give a default as in ${{{name[0]}:-default}}"
                )
            return value or "", position + 1
        if not self.text.startswith(":-", position):
            raise ValueError(
                f"cannot read the interpolation of {name[0]}: only ${{{name[0]}}} and "
                f"${{{name[0]}:-default}} are known, and '}}' must close it "
                "(quote the whole value if it holds ' #' or ': ')"
            )
        default, position = self._default(name[0], position + 2, wanted=wanted and not value)
        return value or default, position

    def _default(self, name: str, position: int, *, wanted: bool) -> tuple[str, int]:
        parts: list[str] = []
        while mark := _MARK_OR_END.search(self.text, position):
            parts.append(self.text[position : mark.start()])
            position = mark.end()
            if mark[0] == "}":
                return "".join(parts), position
            if mark[0] == "$${":
                parts.append("${")
                continue
            value, position = self._variable(mark.start(), wanted=wanted)
            parts.append(value)
        raise ValueError(
            f"the interpolation of {name} is not closed: '}}' is missing "
            "(quote the whole value if it holds ' #' or ': ')"
        )
