"""A lake in an S3 bucket, or in a compatible store that supports conditional writes.

Credentials, region and endpoint come from the environment (``AWS_ACCESS_KEY_ID``,
``AWS_SECRET_ACCESS_KEY``, ``AWS_REGION``, ``AWS_ENDPOINT_URL``, …), or from the machine's role.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from obstore import exceptions
from obstore.store import S3Store

from tailrace.lake.s3 import S3Access
from tailrace.lake.storage import ObjectStoreError

_CODE = re.compile(r"<Code>(\w+)</Code>")


class Bucket:
    """:class:`tailrace.lake.storage.Storage` in an object store.

    One conditional request creates a file: ``If-None-Match: *``
    (https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html).
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        access = S3Access.of()
        with _errors(self._url):
            self._store = S3Store.from_url(
                self._url,
                client_options={"timeout": "120s", "allow_http": access.plain_http},
                retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=60)},
            )

    def list(self, directory: str) -> Sequence[str]:
        with _errors(f"{self._url}/{directory}"):
            listed = self._store.list_with_delimiter(f"{directory}/" if directory else None)
        return [item["path"].rpartition("/")[2] for item in listed["objects"]]

    def read(self, name: str, last: int | None = None) -> bytes:
        with _errors(f"{self._url}/{name}"):
            if last is None:
                return bytes(self._store.get(name).bytes())
            size = self._store.head(name)["size"]
            start = max(size - last, 0)
            return bytes(self._store.get_range(name, start=start, end=size)) if size else b""

    def create(self, name: str) -> BucketDraft:
        return BucketDraft(self, name)

    def put(self, name: str, data: bytes) -> None:
        with _errors(f"{self._url}/{name}"):
            self._store.put(name, data, mode="create", use_multipart=False)

    def tidy(self, directory: str) -> None:
        """Does nothing: an object store has no unfinished objects."""


class BucketDraft:
    """:class:`tailrace.lake.storage.Draft` in memory."""

    def __init__(self, bucket: Bucket, name: str) -> None:
        self._bucket = bucket
        self._name = name
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def held(self) -> int:
        return self._size

    def write(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)

    def finish(self) -> None:
        data = b"".join(self._parts)
        self.discard()
        self._bucket.put(self._name, data)

    def discard(self) -> None:
        self._parts, self._size = [], 0


@contextmanager
def _errors(what: str) -> Iterator[None]:
    """Raises errors of obstore as ``OSError``."""
    try:
        yield
    except exceptions.AlreadyExistsError as error:
        raise FileExistsError(f"{what} exists already") from error
    except (exceptions.NotFoundError, FileNotFoundError) as error:
        raise FileNotFoundError(f"{what}: {_line(error)}") from error
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise PermissionError(f"{what}: {_line(error)}") from error
    except (exceptions.BaseError, ValueError) as error:
        if (code := _code(error)) == "NoSuchBucket":
            raise FileNotFoundError(f"{what}: {code}") from error
        raise ObjectStoreError(f"{what}: {_line(error)}") from error


def _code(error: Exception) -> str:
    """The error code in the server's XML; empty if there is none."""
    match = _CODE.search(str(error))
    return match[1] if match else ""


def _line(error: Exception) -> str:
    """The first line of the error, with the server's error code instead of its XML."""
    line = str(error).strip().partition("\n")[0].partition(": <?xml")[0][:300]
    return f"{line} ({code})" if (code := _code(error)) else line
