"""NUL characters, which neither ``text`` nor ``jsonb`` can hold."""

import re

_ESCAPED = rb"\u0000"
HELD = "holds a NUL character (nul: replace stores U+FFFD instead)"
"""Why an event is refused, after what holds it."""

_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
"""The escape of a NUL in JSON, and not a backslash before ``u0000``."""


def without_nul(text: bytes, *, replace: bool) -> bytes | None:
    """The JSON with U+FFFD for each NUL; ``None`` if it holds one and is not to be replaced."""
    if _ESCAPED not in text or not _NUL.search(text):
        return text
    if not replace:
        return None
    while _NUL.search(text):  # two in a row share no backslash, but the first is consumed
        text = _NUL.sub(rb"\1\\ufffd", text)
    return text
