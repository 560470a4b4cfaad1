"""Java for Spark: found on this machine, or installed where the demo may do so."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio

from tailrace.demo import packages

OLDEST_JAVA = 17
"""What Spark 4 runs on (https://spark.apache.org/docs/latest/)."""

ANSWER_SECONDS = 60.0
"""For a Java to say which it is: half a second, or many on a loaded machine."""

_INSTALLED = Path("/usr/lib/jvm")

# What the releases of Debian and Ubuntu have; the last of them is whatever is theirs.
_DEBIAN = (
    "openjdk-17-jre-headless",
    "openjdk-21-jre-headless",
    "openjdk-25-jre-headless",
    "default-jre-headless",
)


async def find_java(installed: Path | None = None) -> Path | None:
    """The home of a Java that Spark runs on: ``JAVA_HOME``, the path's, else any that is there."""
    for java in _candidates(installed or _INSTALLED):
        home = await _home(java)
        if home is not None:
            return home
    return None


def command() -> str:
    """What a person can do to have one."""
    if shutil.which("apt-get"):
        return packages.command(_DEBIAN[0])
    return f"install a headless Java of {OLDEST_JAVA} or newer, and set JAVA_HOME"


async def install_java(log: Path) -> None:
    """Installs the first of the packages that exists. Raises :class:`TailraceError`."""
    await packages.install(*([package] for package in _DEBIAN), log=log)


def _candidates(installed: Path) -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home, "bin", "java")
    if on_path := shutil.which("java"):
        yield Path(on_path)
    yield from sorted(installed.glob("*/bin/java"), reverse=True)


async def _home(java: Path) -> Path | None:
    """Where it says that it lives, if it runs and is new enough; a command may be a mere shim."""
    show = [str(java), "-XshowSettings:properties", "-version"]
    try:
        with anyio.fail_after(ANSWER_SECONDS):
            said = await anyio.run_process(show, stderr=subprocess.STDOUT, check=False)
    except (OSError, TimeoutError):
        return None
    text = said.stdout.decode("utf-8", "replace")
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", text)
    home = re.search(r"java\.home = (.+)", text)
    if version is None or home is None or int(version[1]) < OLDEST_JAVA:
        return None
    return Path(home[1].strip())
