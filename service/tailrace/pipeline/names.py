"""What tables are called: names of collections made safe for any file system and URL."""

import hashlib
from functools import lru_cache

NO_TABLE = "_"
"""Where the log keeps events that change no single document: drop, rename, invalidate, ..."""

_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
_LONGEST = 200


@lru_cache(4096)
def table_name(database: str, collection: str) -> str:
    """The directory of a collection's table: ``database.collection`` where that is safe.

    Every byte of UTF-8 that is not a letter, a digit, ``-``, ``_`` or ``.`` becomes ``!`` and two
    hexadecimal digits; so does a ``_`` or ``.`` in front, which readers take for a hidden file. A
    name that is too long for a directory ends in a digest instead.
    """
    text = _safe(f"{database}.{collection}")
    if len(text) > _LONGEST:
        digest = hashlib.sha256(f"{database}.{collection}".encode()).hexdigest()[:16]
        return f"{text[: _LONGEST - 18]}!!{digest}"
    return text


def of_database(table: str, database: str) -> bool:
    """Whether a table is one of the database's: names of databases hold no dot."""
    return table.startswith(_safe(f"{database}."))


def _safe(text: str) -> str:
    first = text[:1] in ("_", ".")
    return "".join(
        char
        if char in _SAFE and not (first and at == 0)
        else "".join(f"!{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
        for at, char in enumerate(text)
    )
