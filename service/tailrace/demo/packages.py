"""Debian packages that the demo needs: installed where it runs as root, named elsewhere."""

import os
import shutil
from pathlib import Path

import anyio

from tailrace.demo.child_process import ChildProcess
from tailrace.errors import TailraceError

INSTALLING_SECONDS = 600.0
"""For packages of some 50 MB over a slow line."""

_INSTALL = ("apt-get", "install", "-y", "--no-install-recommends")


def may_install() -> bool:
    """Whether this process may add packages to the system: root on Debian or a derivative."""
    return shutil.which("apt-get") is not None and os.geteuid() == 0


def command(*packages: str) -> str:
    """The command that installs the packages, for a person to run."""
    return " ".join([*([] if os.geteuid() == 0 else ["sudo"]), *_INSTALL, *packages])


async def install(*packages: str, log: Path) -> None:
    """Installs the packages; apt's output goes to ``log``. Raises :class:`TailraceError`."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    ended = f"did not end within {INSTALLING_SECONDS:.0f} s"
    with anyio.move_on_after(INSTALLING_SECONDS):
        # An image has no package lists. Where the update fails, old lists may do.
        for apt in (("apt-get", "update"), (*_INSTALL, *packages)):
            async with ChildProcess(
                apt, log=log, directory=log.parent, environment=environment
            ) as process:
                code = await process.wait()
        if code == 0:
            return
        ended = f"ended with code {code}"
    raise TailraceError(f"apt-get install {' '.join(packages)} {ended}; see {log}")
