"""One name for a directory in Spark, delta-rs and pyarrow: a local path, or a URI."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType

from pyarrow import fs

from tailrace.errors import PipelineRefused, describe
from tailrace.lake.s3 import S3Access
from tailrace.lake.storage import scheme

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_CONNECT_SECONDS = 10
_REQUEST_SECONDS = 60
_ATTEMPTS = 8
"""How often pyarrow sends a request to S3: with its pauses, for about a minute."""
_NOTHING: Mapping[str, str] = MappingProxyType({})
_GLOB = re.compile(r"([\[\]{}*?\\^])")


@dataclass(frozen=True, slots=True)
class Location:
    """A directory or file; ``uri`` is for delta-rs and messages, ``files`` and ``path`` for
    pyarrow."""

    uri: str
    files: fs.FileSystem
    path: str

    @classmethod
    def of(cls, text: str, access: Mapping[str, str] = _NOTHING) -> Location:
        """A path, or a URI that pyarrow knows (``file``, ``s3``, ``gs``, ``hdfs``).

        ``access``: values of variables ``AWS_*`` before those of the environment.
        """
        if not _URI.match(text):
            path = os.path.abspath(text)
            return cls(path, fs.LocalFileSystem(), path)
        uri = text.replace("s3a://", "s3://", 1).rstrip("/")
        if scheme(uri) == "s3":
            return cls(uri, _S3Client(access), uri.removeprefix("s3://"))
        try:
            files, path = fs.FileSystem.from_uri(uri)
        except (ValueError, OSError, NotImplementedError) as error:
            raise PipelineRefused(f"{text}: cannot be opened: {describe(error)}") from error
        return cls(uri, files, path.rstrip("/"))

    @property
    def options(self) -> Mapping[str, str]:
        """What delta-rs must be told beyond what it reads in the environment."""
        if not self.is_s3:
            return {}
        access = S3Access.of()
        options = {"AWS_ENDPOINT_URL": access.endpoint, "AWS_REGION": access.region}
        options |= {"AWS_ALLOW_HTTP": "true"} if access.plain_http else {}
        return {name: value for name, value in options.items() if value}

    @property
    def is_s3(self) -> bool:
        return isinstance(self.files, fs.S3FileSystem)

    def __truediv__(self, name: str) -> Location:
        return Location(f"{self.uri}/{name}", self.files, f"{self.path}/{name}")

    def __str__(self) -> str:
        return self.uri

    @property
    def spark(self) -> str:
        """The name under which Spark reads the location, with glob characters escaped."""
        return _GLOB.sub(r"\\\1", self.written)

    @property
    def written(self) -> str:
        """The name under which Spark writes the location. Hadoop's S3 client has its own scheme."""
        return self.uri.replace("s3://", "s3a://", 1)

    def names(self) -> list[tuple[str, bool]]:
        """The names inside, each with whether it is a directory; none if this does not exist."""
        found = self.files.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return sorted((each.base_name, each.type == fs.FileType.Directory) for each in found)

    def below(self) -> list[tuple[str, fs.FileInfo]]:
        """Every file below, with its relative path."""
        selector = fs.FileSelector(self.path, allow_not_found=True, recursive=True)
        found = self.files.get_file_info(selector)
        paths = {each.path: each for each in found if each.type == fs.FileType.File}
        return [(path[len(self.path) + 1 :], paths[path]) for path in sorted(paths)]

    def exists(self) -> bool:
        (found,) = self.files.get_file_info([self.path])
        return bool(found.type != fs.FileType.NotFound)

    def require_writable(self) -> None:
        """Raises :class:`PipelineRefused` if this is local, and no file can be created here or, if
        this does not exist, in the nearest directory above. Leaves nothing behind."""
        if not isinstance(self.files, fs.LocalFileSystem):
            return
        there = Path(self.path)
        try:
            while not there.exists():
                there = there.parent
            with TemporaryFile(dir=there):
                pass
        except OSError as error:
            raise PipelineRefused(f"{self}: cannot be written: {describe(error)}") from error

    def make(self) -> None:
        """Creates the directory, if it is local: object stores have no directories."""
        if isinstance(self.files, fs.LocalFileSystem):
            self.files.create_dir(self.path)


class _S3Client(fs.S3FileSystem):  # type: ignore[misc]
    """pyarrow's client. It waits and tries again if the store asks for fewer requests (503)."""

    def __init__(self, chosen: Mapping[str, str]) -> None:
        self._chosen = chosen
        access = S3Access.of({**os.environ, **chosen})
        host = access.endpoint.partition("://")[2] or None
        super().__init__(
            access_key=chosen.get("AWS_ACCESS_KEY_ID"),
            secret_key=chosen.get("AWS_SECRET_ACCESS_KEY"),
            session_token=chosen.get("AWS_SESSION_TOKEN"),
            endpoint_override=host,
            scheme=scheme(access.endpoint) or "https",
            region=access.region or None,
            force_virtual_addressing=bool(host) and not access.path_style,
            connect_timeout=_CONNECT_SECONDS,
            request_timeout=_REQUEST_SECONDS,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
        )

    def __reduce__(self) -> tuple[type, tuple[Mapping[str, str]]]:
        """Spark's workers have another environment, and need the keys in that of the driver."""
        named = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        return _S3Client, ({**named, **self._chosen},)
