"""The machine that a check runs on: commands, Debian's packages, free ports."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Sequence


class CheckFailed(Exception):
    """A step did not do what it must; the message says what was seen."""


def run(command: Sequence[str], *, seconds: float = 600, **options: object) -> str:
    """What a command wrote to its standard output; with both outputs in the error if it fails."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    if done.returncode:
        shown = " ".join(command)
        raise CheckFailed(f"{shown}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return str(done.stdout)


def why_no_engine() -> str:
    """Why a Docker engine cannot be had here; empty where it can."""
    if os.geteuid() != 0:
        return "a Docker engine of its own needs root"
    missing = [name for name in ("dockerd", "debootstrap") if not shutil.which(name)]
    if missing and not shutil.which("apt-get"):
        return f"{' and '.join(missing)} cannot be installed: there is no apt"
    return ""


def require(**packages: str) -> list[str]:
    """Installs the Debian packages whose programs are missing; says which those were."""
    missing = [package for program, package in packages.items() if not shutil.which(program)]
    if missing:
        environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        install = ["apt-get", "install", "--yes", "--no-install-recommends", *missing]
        try:
            run(install, env=environ)
        except CheckFailed:  # an old list of packages, or none
            run(["apt-get", "update"], env=environ)
            run(install, env=environ)
    return missing


def free_port() -> int:
    """A port of the loopback that nobody holds right now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port
