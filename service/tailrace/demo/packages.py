"""Debian packages that the demo needs: it installs them as root, else it names them."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from tailrace.demo.child_process import failure_of
from tailrace.errors import TailraceError

INSTALLING_SECONDS = 600.0
"""The time limit, for about 50 MB of packages over a slow connection."""

_INSTALL = ("apt-get", "install", "-y", "--no-install-recommends")

_JAVA = ("openjdk-17-jre-headless", "default-jre-headless")
"""Debian 13 has no OpenJDK 17, but its default is newer. Ubuntu 22.04's default is too old."""


def may_install() -> bool:
    """Whether this process may install packages: it is root on Debian or a derivative."""
    return shutil.which("apt-get") is not None and os.geteuid() == 0


def command(*packages: str) -> str:
    """The command that installs the packages, for the user to run."""
    return " ".join([*([] if os.geteuid() == 0 else ["sudo"]), *_INSTALL, *packages])


async def install(*packages: str, log: Path) -> None:
    """Installs the packages; apt's output goes to ``log``. Raises :class:`TailraceError`."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # A container image has no package lists. If the update fails, old lists may be good enough.
    for apt in (("apt-get", "update"), (*_INSTALL, *packages)):
        failure = await failure_of(
            apt, seconds=INSTALLING_SECONDS, log=log, environment=environment
        )
    if failure:
        raise TailraceError(f"apt-get install {' '.join(packages)} {failure}; see {log}")


async def ready_java(say: Callable[[str], None], log: Path) -> None:
    """Installs Java for Spark if it is missing. If it cannot, the pipeline names that."""
    if "JAVA_HOME" in os.environ or shutil.which("java") or not may_install():
        return
    say(f"Spark needs Java, and there is none here: {command(_JAVA[0])}")
    try:
        await install(_JAVA[0], log=log)
    except TailraceError:
        await install(_JAVA[1], log=log)
