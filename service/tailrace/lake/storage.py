"""The storage of a lake: a local directory, or a prefix of an object store.

Names are relative to the lake. Every method blocks, and raises ``OSError`` if the storage fails.
"""

import re
from collections.abc import Sequence
from typing import Protocol

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


class ObjectStoreError(OSError):
    """An object store could not be reached, or failed; a later attempt may succeed."""


class Draft(Protocol):
    """An unfinished file, which no reader sees."""

    @property
    def held(self) -> int:
        """Bytes of the file that are in memory."""

    def write(self, data: bytes) -> None: ...

    def finish(self) -> None:
        """Gives the file its name, atomically and durably. Ends the draft.

        Raises ``FileExistsError`` if the name is in use: no file is ever overwritten. After any
        other error the file may or may not exist.
        """

    def discard(self) -> None:
        """Removes an unfinished draft; :meth:`Storage.tidy` removes drafts that a crash left."""


class Storage(Protocol):
    def list(self, directory: str) -> Sequence[str]:
        """The names of the finished files, in any order; none if the directory does not exist."""

    def read(self, name: str, last: int | None = None) -> bytes:
        """The file's bytes, or at most the ``last`` ones. Raises ``FileNotFoundError``."""

    def create(self, name: str) -> Draft:
        """A draft of the file, to be written in parts."""

    def put(self, name: str, data: bytes) -> None:
        """Creates the file in one step, as :meth:`Draft.finish` does."""

    def tidy(self, directory: str) -> None:
        """Removes drafts whose file exists already, and makes the finished files durable."""


def overwrites(storage: Storage, name: str, data: bytes) -> bool:
    """Whether a storage replaces a file that is there: then it cannot fence a second writer.

    Some object stores ignore S3's conditional writes (JuiceFS's gateway does). ``data`` is what the
    file holds already.
    """
    try:
        storage.put(name, data)
    except FileExistsError:
        return False
    return True


def scheme(path: str) -> str:
    """The scheme of a URL, such as ``s3`` for ``s3://bucket/prefix``; empty for a local path."""
    match = _SCHEME.match(path)
    return match[1].lower() if match else ""
