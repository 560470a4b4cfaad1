"""Where a lake lies: a directory of this machine, or a prefix of an object store.

Names are relative to the lake, with ``/`` between their parts. Every method blocks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


class ObjectStoreError(OSError):
    """An object store could not be reached, or failed: that may pass."""


class Draft(Protocol):
    """A file on its way, which nobody sees before it is finished. Failures are ``OSError``."""

    @property
    def held(self) -> int:
        """Bytes of it that are in memory."""

    def write(self, data: bytes) -> None:
        """Appends the bytes."""

    def finish(self) -> None:
        """Gives the file its name, whole or not at all; a power cut does not take it back.

        Raises ``FileExistsError`` where it exists already: nothing is ever overwritten. Any other
        error leaves open whether the file is there. Ends the draft.
        """

    def discard(self) -> None:
        """Gives it up. What cannot be removed now is left to :meth:`Storage.tidy`."""


class Storage(Protocol):
    """What a lake asks of the place it lies in.

    Failures are ``OSError``, among them ``FileNotFoundError`` where there is no such file.
    """

    def list(self, directory: str) -> Sequence[str]:
        """Names of the files in the directory, in any order; none where it does not exist."""

    def read(self, name: str, last: int | None = None) -> bytes:
        """The file's bytes, or at most so many of them from its end."""

    def create(self, name: str) -> Draft:
        """A file that is written bit by bit."""

    def put(self, name: str, data: bytes) -> None:
        """Creates the file at once, as :meth:`Draft.finish` does."""

    def tidy(self, directory: str) -> None:
        """Removes unfinished files whose names are taken, and makes sure of the finished ones.

        So nothing is removed that another process could still finish: whoever takes a name and
        then tidies leaves nothing behind of those that tried before, and died.
        """


def scheme(path: str) -> str:
    """``s3`` of ``s3://bucket/prefix``; empty for a path of this machine."""
    match = _SCHEME.match(path)
    return match[1].lower() if match else ""


def open_storage(path: str) -> Storage:
    """The storage at a path or URL; the path's directories are made where they are missing.

    Raises ``OSError`` where that is not possible, and ``ValueError`` for a URL of another kind.
    """
    kind = scheme(path)
    if kind == "s3":
        from tailrace.lake.bucket import Bucket

        return Bucket(path)
    if kind and kind != "file":
        raise ValueError(f"no lake can lie in {kind}://: use a directory, or s3://bucket/prefix")
    from tailrace.lake.directory import Directory

    return Directory(Path(path.removeprefix("file://")))
