"""A lake: its identity, and the segments of each scope. Needs the extra ``lake``."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import SegmentUnreadable
from tailrace.lake.directory import Directory
from tailrace.lake.segment import (
    FORMAT,
    LAKE_FILE,
    Footer,
    lake_identity,
    segment_name,
    segment_number,
)
from tailrace.lake.segment_metadata import read_footer
from tailrace.lake.storage import Storage, overwrites, scheme


@dataclass(frozen=True, slots=True)
class WritableLake:
    """A lake to which segments are written. Every method blocks; storage errors are ``OSError``."""

    path: str
    storage: Storage
    id: str

    @classmethod
    def open(cls, path: str) -> WritableLake:
        """Opens the lake, or creates an empty one.

        Raises :class:`SegmentUnreadable` if ``lake.json`` is not a lake's, and ``ValueError`` for a
        URL with an unknown scheme or a storage that overwrites files.
        """
        storage = open_storage(path)
        try:
            text = storage.read(LAKE_FILE)
        except FileNotFoundError:
            new = json.dumps({"format": FORMAT, "id": str(uuid.uuid4())}).encode() + b"\n"
            with suppress(FileExistsError):
                storage.put(LAKE_FILE, new)
            text = storage.read(LAKE_FILE)
        lake = cls(path, storage, _identity(path, text))
        if overwrites(storage, LAKE_FILE, text):
            raise ValueError(
                "the storage ignores 'If-None-Match: *', and so overwrites what is there"
            )
        storage.tidy("")
        return lake

    def require_identity(self) -> None:
        """Raises :class:`SegmentUnreadable` if the lake was removed or replaced."""
        try:
            identity = _identity(self.path, self.storage.read(LAKE_FILE))
        except FileNotFoundError:
            identity = ""
        if identity != self.id:
            now = f"now holds the lake {identity}" if identity else f"has no {LAKE_FILE} any more"
            raise SegmentUnreadable(
                f"{self.path} held the lake {self.id} and {now}: it was removed or replaced. "
                "Restore it, or restart to land in what is there"
            )

    def segments(self, scope: str) -> Sequence[int]:
        """The numbers of the scope's segments, ascending.

        Raises :class:`SegmentUnreadable` if one in between is missing.
        """
        every = (segment_number(name) for name in self.storage.list(scope))
        numbers = sorted(number for number in every if number is not None)
        if numbers and numbers[-1] - numbers[0] != len(numbers) - 1:
            missing = next(n for n, found in enumerate(numbers, numbers[0]) if n != found)
            raise SegmentUnreadable(
                f"{self.where(scope, missing)} is missing, though there are earlier and later "
                "segments: restore it. Nothing was changed"
            )
        return numbers

    def footer(self, scope: str, number: int) -> Footer:
        """A segment's footer.

        Raises :class:`SegmentUnreadable` if the file is damaged, foreign or misplaced.
        """
        name = f"{scope}/{segment_name(number)}"
        return read_footer(
            lambda last: self.storage.read(name, last),
            where=self.where(scope, number),
            lake=self.id,
            scope=scope,
            number=number,
        )

    def where(self, scope: str, number: int) -> str:
        """A segment's full path, for messages."""
        return f"{self.path.rstrip('/')}/{scope}/{segment_name(number)}"


def open_storage(path: str) -> Storage:
    """The storage at a URL of a known scheme, or at a path, whose directories are created."""
    kind = scheme(path)
    if kind == "s3":
        from tailrace.lake.bucket import Bucket  # needs obstore

        return Bucket(path)
    if kind and kind != "file":
        raise ValueError(f"no lake can lie in {kind}://: use a directory, or s3://bucket/prefix")
    return Directory(Path(path.removeprefix("file://")))


def _identity(path: str, text: bytes) -> str:
    try:
        return lake_identity(text)
    except (ValueError, RecursionError) as error:
        raise SegmentUnreadable(
            f"{path.rstrip('/')}/{LAKE_FILE} is not the identity of a lake: {error}. Restore it, "
            "or choose another path"
        ) from error
