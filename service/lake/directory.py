"""A lake in a directory of this machine."""

from __future__ import annotations

import errno
import os
import re
import uuid
from collections.abc import Sequence
from pathlib import Path

_DRAFT = re.compile(r"\.(.+)\.[0-9a-f]{32}\.draft")


class Directory:
    """:class:`service.lake.storage.Storage` over files: a draft, synced, then linked to its name.

    A link never replaces a file, unlike a rename.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._make(root)

    def list(self, directory: str) -> Sequence[str]:
        try:
            names = os.listdir(self._root / directory)
        except FileNotFoundError:
            return []
        return [name for name in names if not _DRAFT.fullmatch(name)]

    def read(self, name: str, last: int | None = None) -> bytes:
        with open(self._root / name, "rb") as file:
            if last is not None:
                file.seek(max(file.seek(0, os.SEEK_END) - last, 0))
            return file.read()

    def put(self, name: str, *parts: bytes) -> None:
        path = self._root / name
        if not path.parent.is_dir():
            # Not those above it, which were made when the lake was opened: without them it is gone.
            path.parent.mkdir(exist_ok=True)
            self._sync(self._root)
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.draft")
        try:
            self._write(draft, parts)
            os.link(draft, path)
        except FileNotFoundError as error:
            # Another process may have taken the name, and then tidied the draft away.
            if path.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
            raise
        finally:
            draft.unlink(missing_ok=True)
        self._sync(path.parent)

    def tidy(self, directory: str) -> None:
        path = self._root / directory
        try:
            names = os.listdir(path)
        except FileNotFoundError:
            return
        for name in names:
            draft = _DRAFT.fullmatch(name)
            # Where the name is free, another process may be about to take it.
            if draft and (path / draft[1]).exists():
                (path / name).unlink(missing_ok=True)
        self._sync(path)
        self._sync(self._root)

    def _write(self, path: Path, parts: Sequence[bytes]) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            for part in parts:
                view = memoryview(part)
                while len(view):
                    view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _make(self, path: Path) -> None:
        """Makes the directory and those above it, each durably."""
        if not path.is_dir():
            if path.exists():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
            self._make(path.parent)
            path.mkdir(exist_ok=True)
            self._sync(path.parent)

    def _sync(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
