"""Java for Spark: found on this machine, or installed where that is ours to do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio

from service.demo.child_process import ChildProcess
from service.errors import TailraceError

OLDEST_JAVA = 17
"""What Spark 4 runs on (https://spark.apache.org/docs/latest/)."""

INSTALLING_SECONDS = 600.0
"""For a package of some 50 MB over a slow line."""

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

# Elsewhere we only say the command.
_OTHERS = {
    "dnf": "sudo dnf install java-latest-openjdk-headless",
    "apk": "sudo apk add openjdk17-jre-headless",
    "pacman": "sudo pacman -S jre-openjdk-headless",
    "zypper": "sudo zypper install java-17-openjdk-headless",
    "brew": "brew install openjdk",
}


async def find_java(installed: Path | None = None) -> Path | None:
    """The home of a Java that Spark runs on: ``JAVA_HOME``, the path's, else any that is there."""
    for java in _candidates(installed or _INSTALLED):
        home = await _home(java)
        if home is not None:
            return home
    return None


def may_install() -> bool:
    """Whether the system's packages are ours to add to: root on Debian or its like."""
    return shutil.which("apt-get") is not None and os.geteuid() == 0


def command() -> str:
    """The one command that installs it, for a person to run."""
    if shutil.which("apt-get"):
        sudo = "" if os.geteuid() == 0 else "sudo "
        return f"{sudo}apt-get install -y --no-install-recommends {_DEBIAN[0]}"
    found = (line for program, line in _OTHERS.items() if shutil.which(program))
    return next(found, f"install a headless Java of {OLDEST_JAVA} or newer, and set JAVA_HOME")


async def install_java(log: Path) -> None:
    """Installs the first of the packages that there is. Raises :class:`TailraceError`."""
    with anyio.move_on_after(INSTALLING_SECONDS) as limit:
        await _apt("apt-get", "update", log=log)  # an image has no lists; old ones may do
        for package in _DEBIAN:
            if await _apt("apt-cache", "show", package, log=log) == 0:
                arguments = ("install", "-y", "--no-install-recommends", package)
                code = await _apt("apt-get", *arguments, log=log)
                if code == 0:
                    return
                raise TailraceError(f"apt-get install {package} ended with code {code}; see {log}")
    if limit.cancelled_caught:
        message = f"it was not installed within {INSTALLING_SECONDS:.0f} s; see {log}"
        raise TailraceError(message)
    raise TailraceError(f"this system has no package of Java {OLDEST_JAVA} or newer; see {log}")


async def _apt(*arguments: str, log: Path) -> int:
    process = ChildProcess(
        arguments[0],
        arguments,
        log=log,
        directory=log.parent,
        environment={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    )
    async with process:
        return await process.wait()


def _candidates(installed: Path) -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home, "bin", "java")
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)
    yield from sorted(installed.glob("*/bin/java"), reverse=True)


async def _home(java: Path) -> Path | None:
    """Where it says that it lives, if it runs and is new enough; a command may be a mere shim."""
    try:
        with anyio.fail_after(ANSWER_SECONDS):
            said = await anyio.run_process(
                [str(java), "-XshowSettings:properties", "-version"],
                stderr=subprocess.STDOUT,
                check=False,
            )
    except (OSError, TimeoutError):
        return None
    text = said.stdout.decode("utf-8", "replace")
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", text)
    home = re.search(r"java\.home = (.+)", text)
    if version is None or home is None or int(version[1]) < OLDEST_JAVA:
        return None
    return Path(home[1].strip())
