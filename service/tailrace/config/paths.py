"""How a place in the file is written: ``scopes[0].batch_size``."""

from __future__ import annotations

import re

Location = tuple[str | int, ...]

_WORD = re.compile(r"[^\s.\[\]\"'()]+\Z")


def path_of(location: Location) -> str:
    """The path of a place; a key that would be misread stands in brackets and quotes."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif "://" in part:
            path += "[…]"  # a connection string in the place of a key
        elif _WORD.match(part):
            path += f".{part}" if path else part
        else:
            path += f"[{part!r}]"
    return path
