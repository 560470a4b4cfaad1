"""The token that the service makes where its port is beyond loopback and none is configured.

It is in a file beside the store, which only the user of the service can read. So commands on the
same machine (or in the same container) act without configuration, and others need what is in the
file. It stays across restarts, and processes that share the store's directory share it.
"""

import fcntl
import os
import secrets
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tailrace.errors import describe
from tailrace.masking import keep_secret

_MODE = 0o600
_BYTES = 32
_SHORTEST = 16
"""As for a configured one: a file with less is replaced."""
_LONGEST = 1024


def read_token(file: Path) -> str:
    """The token in a file; empty if there is none. Raises :class:`OSError` if it is unreadable."""
    try:
        with file.open("rb") as opened:
            token = opened.read(_LONGEST).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return ""
    if len(token) < _SHORTEST or not token.isprintable():
        return ""
    keep_secret(token)
    return token


def make_token(file: Path) -> str:
    """The token in the file, which is made if there is none.

    Empty if the file cannot be written: then all changes over HTTP are refused, and the log says
    what helps.
    """
    try:
        if not (token := read_token(file)):
            file.parent.mkdir(parents=True, exist_ok=True)
            with _alone_in(file.parent):
                if not read_token(file):
                    _write(file, secrets.token_urlsafe(_BYTES))
                token = read_token(file)
    except OSError as error:
        import structlog  # here: it takes long, and commands only read a token

        structlog.get_logger().warning(
            "http.token_not_made",
            path=str(file.absolute()),
            error=describe(error),
            consequence="every change over HTTP is refused, also to commands on this machine",
            help="configure http.token, or let the service write to that directory",
        )
        return ""
    return token


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Lets one process at a time make a token in the directory, where that can be locked."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # some network file systems lock no directories
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(file: Path, token: str) -> None:
    """Gives a complete file its name, in the place of one that holds no token."""
    from tailrace.durable_files import sync_directory  # here: commands only read a token

    draft = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    try:
        with os.fdopen(descriptor, "w") as opened:
            opened.write(f"{token}\n")
            opened.flush()
            os.fsync(opened.fileno())
        draft.replace(file)
        with suppress(OSError):  # some network file systems sync no directories
            sync_directory(file.parent)
    finally:
        draft.unlink(missing_ok=True)
