"""The system's packages: what the demo lacks is installed where that is ours to do, else named."""

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


def may_install() -> bool:
    """Whether this process may add packages to the system: root on Debian or its like."""
    return shutil.which("apt-get") is not None and os.geteuid() == 0


def command(*packages: str) -> str:
    """The one command that installs Debian's packages, for a person to run."""
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}apt-get install -y --no-install-recommends {' '.join(packages)}"


async def install(*choices: Sequence[str], log: Path) -> None:
    """Installs the first of the choices whose packages all exist; apt's output goes to ``log``.

    Raises :class:`TailraceError`.
    """
    with anyio.move_on_after(INSTALLING_SECONDS) as limit:
        await _apt("apt-get", "update", log=log)  # an image has no lists; old ones may do
        for packages in choices:
            if await _apt("apt-cache", "show", *packages, log=log) == 0:
                arguments = ("install", "-y", "--no-install-recommends", *packages)
                code = await _apt("apt-get", *arguments, log=log)
                if code == 0:
                    return
                names = " ".join(packages)
                raise TailraceError(f"apt-get install {names} ended with code {code}; see {log}")
    if limit.cancelled_caught:
        message = f"it was not installed within {INSTALLING_SECONDS:.0f} s; see {log}"
        raise TailraceError(message)
    wanted = " or ".join(" ".join(packages) for packages in choices)
    raise TailraceError(f"this system has no package {wanted}; see {log}")


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
