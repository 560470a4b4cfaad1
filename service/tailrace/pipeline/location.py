"""Directories that Spark, delta-rs and pyarrow name alike: local ones, and those of a URI."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from pyarrow import fs

from tailrace.errors import PipelineRefused, describe

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_GLOB = re.compile(r"([\[\]{}*?\\^])")


@dataclass(frozen=True, slots=True)
class Location:
    """A directory, and how its files are reached.

    ``uri`` is what delta-rs and messages call it, ``files`` and ``path`` are pyarrow's.
    """

    uri: str
    files: fs.FileSystem
    path: str

    @classmethod
    def of(cls, text: str) -> Location:
        """A path, or a URI that pyarrow knows (``file``, ``s3``, ``gs``, ``hdfs``)."""
        if not _URI.match(text):
            path = os.path.abspath(text)
            return cls(path, fs.LocalFileSystem(), path)
        try:
            files, path = fs.FileSystem.from_uri(text.replace("s3a://", "s3://", 1))
        except (ValueError, OSError, NotImplementedError) as error:
            raise PipelineRefused(f"{text}: cannot be opened: {describe(error)}") from error
        return cls(text.replace("s3a://", "s3://", 1).rstrip("/"), files, path.rstrip("/"))

    def __truediv__(self, name: str) -> Location:
        return Location(f"{self.uri}/{name}", self.files, f"{self.path}/{name}")

    def __str__(self) -> str:
        return self.uri

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def spark(self) -> str:
        """What Spark calls it; Hadoop's S3 client has a scheme of its own, and reads globs."""
        return _GLOB.sub(r"\\\1", self.written)

    @property
    def written(self) -> str:
        """What Spark calls it where it writes, and reads no globs."""
        return self.uri.replace("s3://", "s3a://", 1)

    def names(self) -> list[tuple[str, bool]]:
        """What is inside, with whether it is a directory; nothing where there is no such place."""
        found = self.files.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return sorted((each.base_name, each.type == fs.FileType.Directory) for each in found)

    def below(self) -> list[tuple[str, fs.FileInfo]]:
        """Every file below, with its path from here."""
        selector = fs.FileSelector(self.path, allow_not_found=True, recursive=True)
        found = self.files.get_file_info(selector)
        start = len(self.path) + 1
        return sorted(
            ((each.path[start:], each) for each in found if each.type == fs.FileType.File),
            key=lambda entry: entry[0],
        )

    def read(self) -> bytes | None:
        """What the file holds; ``None`` where there is none."""
        try:
            with self.files.open_input_stream(self.path) as stream:
                data: bytes = stream.read()
                return data
        except FileNotFoundError:
            return None

    def make(self) -> None:
        """Makes the directory where that means anything."""
        if isinstance(self.files, fs.LocalFileSystem):
            Path(self.path).mkdir(parents=True, exist_ok=True)

    def remove(self) -> None:
        """Removes the file."""
        self.files.delete_file(self.path)
