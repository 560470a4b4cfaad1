"""``${NAME}`` and ``${NAME:-default}`` inside the values of the file.

As in a shell, the default also replaces an empty variable, and may itself hold an interpolation.
``$${`` is a literal ``${``. A ``$`` before anything else is a dollar, so aggregation expressions
(``$match``, ``$$ROOT``) need no escape.
"""

import re
from collections.abc import Mapping
from typing import Any

_MARK = re.compile(r"\$\$\{|\$\{|\}")
_OPENING = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(:-|\})")
_SYNTAX = (
    "cannot read the variable: write ${NAME} or ${NAME:-default}, and $${ for a literal '${' "
    "(quote the whole value if it holds ' #' or ': ')"
)


class Interpolated(str):
    """Text from the environment, in whole or in part. It may be a secret: no message shows it.

    ``value`` is what YAML reads in its place, ``quoted`` whether it is quoted in the file.
    """

    __slots__ = ("quoted", "value")

    quoted: bool
    value: Any


class Unresolved(str):
    """In place of a value that could not be read, which is already reported."""

    __slots__ = ()


def interpolate(text: str, environ: Mapping[str, str]) -> tuple[str, list[str]]:
    """The text with its variables replaced, and what is wrong with them."""
    reader = _Reader(text, environ)
    try:
        return reader.read(0)[0], reader.problems
    except ValueError as error:
        return text, [*reader.problems, str(error)]


class _Reader:
    """Reads one text from left to right. ``ValueError`` where the syntax is wrong."""

    def __init__(self, text: str, environ: Mapping[str, str]) -> None:
        self.text = text
        self.environ = environ
        self.problems: list[str] = []

    def read(self, position: int, nested: bool = False, used: bool = True) -> tuple[str, int]:
        """The text from the position to its end, and where that is; a nested one ends with ``}``.

        A variable in a default that is not ``used`` may be unset.
        """
        parts: list[str] = []
        while mark := _MARK.search(self.text, position):
            parts.append(self.text[position : mark.start()])
            position = mark.end()
            if mark[0] == "${":
                value, position = self._variable(mark.start(), used)
                parts.append(value)
            elif mark[0] == "}" and nested:
                return "".join(parts), position
            else:
                parts.append(mark[0].replace("$$", "$"))
        if nested:
            raise ValueError(_SYNTAX)
        return "".join([*parts, self.text[position:]]), len(self.text)

    def _variable(self, start: int, used: bool) -> tuple[str, int]:
        match = _OPENING.match(self.text, start)
        if not match:
            raise ValueError(_SYNTAX)
        name, default, end = match[1], "", match.end()
        value = self.environ.get(name)
        if match[2] == ":-":
            default, end = self.read(end, True, used and not value)
        elif value is None and used:
            self.problems.append(
                f"the environment variable {name} is not set; "
                f"set it, or give a default as in ${{{name}:-default}}"
            )
        return value or default, end
