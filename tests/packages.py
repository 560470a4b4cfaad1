"""Programs of Debian packages for tests: the system's own, else unpacked, else installed.

Several test processes share a machine: whatever gets a package holds :func:`exclusive`, and looks
inside it whether another process was quicker.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.machine import CheckFailed, exclusive, run


def install(**packages: str) -> list[str]:
    """Installs the Debian packages whose programs are missing; says which those were."""
    with exclusive():
        missing = [package for program, package in packages.items() if not shutil.which(program)]
        if missing:
            environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            command = ["apt-get", "install", "--yes", "--no-install-recommends", *missing]
            try:
                run(command, env=environ)
            except CheckFailed:  # an old list of packages, or none
                run(["apt-get", "update"], env=environ)
                run(command, env=environ)
    return missing


def require_installed(program: str, *others: str) -> str:
    """The path of a program: the system's, or of the package of its name, which is installed.

    Skips where that cannot be. ``others`` are packages to install beside it.
    """
    if shutil.which(program) is None:
        packages = (program, *others)
        if shutil.which("apt-get") is None or os.geteuid() != 0:
            pytest.skip(f"needs {program}: install it ('apt-get install {' '.join(packages)}')")
        try:
            install(**{package: package for package in packages})
        except CheckFailed as error:
            pytest.skip(f"needs {program}, which apt-get refused: {error}")
    found = shutil.which(program)
    assert found, f"Debian's package {program} has no command {program}"
    return found


def require(command: str, *, package: str) -> str:
    """The path of a command: the system's own, or that of the unpacked package. Or skips."""
    found = shutil.which(command)
    if found is None:
        below = unpacked(package)
        found = shutil.which(command, path=f"{below}/usr/bin:{below}/usr/sbin:{below}/bin")
    assert found, f"Debian's package {package} has no command {command}"
    return found


def unpacked(package: str) -> Path:
    """The directory with a Debian package's files, fetched once. Skips where that cannot be.

    Installing would start services (Debian's prometheus does) and needs root; unpacking needs
    neither. It serves programs that bring what they need in their own package.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tailrace-tests"
    there = cache / package
    if there.is_dir():
        return there
    for tool in ("apt-get", "dpkg"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs Debian's package {package}, and there is no {tool} here")
    cache.mkdir(parents=True, exist_ok=True)
    with exclusive():
        if not there.is_dir():
            with tempfile.TemporaryDirectory(dir=cache) as fresh:
                _download(package, fresh)
                (archive,) = Path(fresh).glob("*.deb")
                run(["dpkg", "-x", str(archive), f"{fresh}/files"])
                os.rename(f"{fresh}/files", there)  # a whole directory is never half there
    return there


def _download(package: str, directory: str) -> None:
    # As root, apt would hand over to a user who may not write here.
    command = ["apt-get", "-o", "APT::Sandbox::User=root", "download", package]
    try:
        try:
            run(command, cwd=directory)
        except CheckFailed:
            run(["apt-get", "update"])  # a fresh image has no lists
            run(command, cwd=directory)
    except CheckFailed as error:
        pytest.skip(f"needs Debian's package {package}: {error}")
