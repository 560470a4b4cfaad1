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

        Raises ``FileExistsError`` where the name is taken: nothing is ever overwritten. After any
        other error the file may exist or not.
        """

    def discard(self) -> None:
        """Removes the draft, if it is not finished; :meth:`Storage.tidy` removes what remains."""


class Storage(Protocol):
    def list(self, directory: str) -> Sequence[str]:
        """Names of the finished files in the directory, in any order; none without a directory."""

    def read(self, name: str, last: int | None = None) -> bytes:
        """The bytes of the file, or at most its ``last`` ones. ``FileNotFoundError`` without it."""

    def create(self, name: str) -> Draft:
        """A draft of the file, to be written in parts."""

    def put(self, name: str, data: bytes) -> None:
        """Creates the file, as :meth:`Draft.finish` does."""

    def tidy(self, directory: str) -> None:
        """Removes drafts whose names are taken, and makes the finished files durable."""


def scheme(path: str) -> str:
    """``s3`` of ``s3://bucket/prefix``; empty for a path of this machine."""
    match = _SCHEME.match(path)
    return match[1].lower() if match else ""
