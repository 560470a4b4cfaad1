"""``${NAME}`` and ``${NAME:-default}`` inside the values of the file.

As in a shell, the default also replaces an empty variable. It is plain text up to the next ``}``.
``$${`` is a literal ``${``. Any other ``$`` is a plain dollar sign, so aggregation expressions
(``$match``, ``$$ROOT``) need no escape.
"""

import re
from collections.abc import Mapping
from typing import Any

_LITERAL = "$${"
_VARIABLE = re.compile(
    r"\$\$\{|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\})?"
)
_SYNTAX = (
    "cannot read the variable: write ${NAME} or ${NAME:-default}, and $${ for a literal '${' "
    "(quote the whole value if it holds ' #' or ': ')"
)


class Interpolated(str):
    """Text that comes wholly or partly from the environment. It may be secret: no message shows it.

    ``value``: the text as YAML would read it; ``quoted``: whether it is quoted in the file.
    """

    __slots__ = ("quoted", "value")

    quoted: bool
    value: Any


class Unresolved(str):
    """Stands for a value that could not be read. That problem is already reported."""

    __slots__ = ()


def interpolate(text: str, environ: Mapping[str, str]) -> tuple[str, list[str]]:
    """The text with its variables replaced, and the problems of the variables."""
    problems: list[str] = []

    def replaced(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if match[0] == _LITERAL:
            return "${"
        if name is None:
            problems.append(_SYNTAX)
        elif default is None and name not in environ:
            problems.append(
                f"the environment variable {name} is not set; "
                f"set it, or give a default as in ${{{name}:-default}}"
            )
        elif default and "${" in default.replace(_LITERAL, ""):
            problems.append(
                f"the default of {name} holds a variable, and is plain text; set {name} itself"
            )
        return environ.get(name) or (default or "").replace(_LITERAL, "${")

    return _VARIABLE.sub(replaced, text), problems
