"""Packages of the system that the demo needs: installed as root on Debian, named elsewhere."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import anyio

from tailrace.demo.child_process import ChildProcess
from tailrace.errors import TailraceError

INSTALLING_SECONDS = 600.0
"""For packages of some 50 MB over a slow line."""

_INSTALL = ("apt-get", "install", "-y", "--no-install-recommends")


def may_install() -> bool:
    """Whether this process may add packages to the system: root on Debian or its like."""
    return shutil.which("apt-get") is not None and os.geteuid() == 0


def command(*packages: str) -> str:
    """The command that installs Debian's packages, for a person to run."""
    return " ".join([*([] if os.geteuid() == 0 else ["sudo"]), *_INSTALL, *packages])


async def install(*choices: Sequence[str], log: Path) -> None:
    """Installs the first of the choices whose packages all exist; apt's output goes to ``log``.

    Raises :class:`TailraceError`.
    """
    try:
        with anyio.fail_after(INSTALLING_SECONDS):
            await _apt("apt-get", "update", log=log)  # an image has no lists; old ones may do
            for packages in choices:
                if await _apt("apt-cache", "show", *packages, log=log) == 0:
                    code = await _apt(*_INSTALL, *packages, log=log)
                    if code == 0:
                        return
                    what = f"apt-get install {' '.join(packages)} ended with code {code}"
                    raise TailraceError(f"{what}; see {log}")
    except TimeoutError:
        what = f"it was not installed within {INSTALLING_SECONDS:.0f} s"
        raise TailraceError(f"{what}; see {log}") from None
    wanted = " or ".join(" ".join(packages) for packages in choices)
    raise TailraceError(f"this system has no package {wanted}; see {log}")


async def _apt(*command: str, log: Path) -> int:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    async with ChildProcess(
        command, log=log, directory=log.parent, environment=environment
    ) as process:
        return await process.wait()
