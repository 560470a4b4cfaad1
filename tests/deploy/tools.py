"""Programs of Debian packages for tests: unpacked into a cache, so that nothing is installed.

Installing would start services (Debian's prometheus does) and needs root; unpacking needs neither.
It serves programs that bring what they need in their own package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

_SECONDS = 300


def require(command: str, *, package: str) -> str:
    """The path of a command: the system's own, or that of the unpacked package. Or skips."""
    found = shutil.which(command)
    if found is None:
        below = unpacked(package)
        found = shutil.which(command, path=f"{below}/usr/bin:{below}/usr/sbin:{below}/bin")
    assert found, f"Debian's package {package} has no command {command}"
    return found


def unpacked(package: str) -> Path:
    """The directory with a Debian package's files, fetched once. Skips where that cannot be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tailrace-tests"
    there = cache / package
    if there.is_dir():
        return there
    for tool in ("apt-get", "dpkg"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs Debian's package {package}, and there is no {tool} here")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as fresh:
        _download(package, fresh)
        (archive,) = Path(fresh).glob("*.deb")
        subprocess.run(["dpkg", "-x", str(archive), f"{fresh}/files"], check=True)
        # Another session may have been quicker; a whole directory is never half there.
        if not there.is_dir():
            os.rename(f"{fresh}/files", there)
    return there


def _download(package: str, directory: str) -> None:
    # As root, apt would hand over to a user who may not write here.
    command = ["apt-get", "-o", "APT::Sandbox::User=root", "download", package]
    done = _run(command, directory)
    if done.returncode and os.geteuid() == 0:
        _run(["apt-get", "update"], directory)  # a fresh image has no lists
        done = _run(command, directory)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
        pytest.skip(f"needs Debian's package {package}: {reason[0]}")


def _run(command: list[str], directory: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
