"""A lake in a local directory."""

from __future__ import annotations

import errno
import os
import re
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tailrace.durable_files import PRIVATE, sync_directory, write_all

_DRAFT = re.compile(r"\.(.+)\.[0-9a-f]{32}\.draft")


class Directory:
    """:class:`tailrace.lake.storage.Storage` in local files.

    A draft is synced and then hard-linked to its name. Unlike a rename, a link never replaces a
    file.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        for path in reversed((root, *root.parents)):
            if not path.exists():
                path.mkdir(exist_ok=True)
                sync_directory(path.parent)

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

    def create(self, name: str) -> DirectoryDraft:
        return DirectoryDraft(self._root, self._root / name)

    def put(self, name: str, data: bytes) -> None:
        draft = self.create(name)
        try:
            draft.write(data)
            draft.finish()
        finally:
            draft.discard()

    def tidy(self, directory: str) -> None:
        path = self._root / directory
        try:
            names = os.listdir(path)
        except FileNotFoundError:
            return
        for name in names:
            draft = _DRAFT.fullmatch(name)
            if draft and (path / draft[1]).exists():
                (path / name).unlink(missing_ok=True)
        sync_directory(path)
        sync_directory(self._root)


class DirectoryDraft:
    """:class:`tailrace.lake.storage.Draft` as a hidden file in the same directory."""

    def __init__(self, root: Path, path: Path) -> None:
        self._root = root
        self._path = path
        self._draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.draft")
        self._descriptor: int | None = None

    @property
    def held(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        write_all(self._opened(), data)

    def finish(self) -> None:
        try:
            os.fsync(self._opened())
            os.link(self._draft, self._path)
        except FileNotFoundError as error:
            # Another process may have created the file, and then removed this draft (`tidy`).
            if self._path.exists():
                raise FileExistsError(
                    errno.EEXIST, os.strerror(errno.EEXIST), str(self._path)
                ) from error
            raise
        finally:
            self._remove()
        sync_directory(self._path.parent)

    def discard(self) -> None:
        with suppress(OSError):
            self._remove()

    def _opened(self) -> int:
        if self._descriptor is None:
            directory = self._path.parent
            if not directory.is_dir():
                # Only the scope's directory: if the lake's own is missing, the lake was removed.
                directory.mkdir(exist_ok=True)
                sync_directory(self._root)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._descriptor = os.open(self._draft, flags, PRIVATE)
        return self._descriptor

    def _remove(self) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)
            self._draft.unlink(missing_ok=True)
