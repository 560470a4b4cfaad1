"""Programs of Debian packages for tests: the system's own, or unpacked, or installed.

Several test processes share a machine. A function that fetches a package holds :func:`exclusive`,
and first checks whether another process has fetched it meanwhile.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.checkout import ROOT
from tests.machine import CheckFailed, exclusive, run


def install_for_demo() -> None:
    """Installs what mongod and Spark need, as ``make demo`` does."""
    with exclusive():
        run(["make", "--directory", str(ROOT), "packages"])


def install(**packages: str) -> list[str]:
    """Installs the Debian packages whose programs are missing; returns their names."""
    with exclusive():
        missing = [package for program, package in packages.items() if not shutil.which(program)]
        if missing:
            environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            command = ["apt-get", "install", "--yes", "--no-install-recommends", *missing]
            try:
                run(command, env=environ)
            except CheckFailed:  # the package lists are old or missing
                run(["apt-get", "update"], env=environ)
                run(command, env=environ)
    return missing


def require_installed(program: str, *others: str, package: str = "") -> str:
    """The path of a program, whose package (by default of its name) is installed if it is missing.

    Skips the test if it cannot be installed. ``others`` are more packages to install with it.
    """
    if shutil.which(program) is None:
        packages = (package or program, *others)
        if shutil.which("apt-get") is None or os.geteuid() != 0:
            pytest.skip(f"needs {program}: install it ('apt-get install {' '.join(packages)}')")
        try:
            install(**{program: packages[0]}, **{other: other for other in others})
        except CheckFailed as error:
            pytest.skip(f"needs {program}, which apt-get refused: {error}")
    found = shutil.which(program)
    assert found, f"Debian's package {package or program} has no command {program}"
    return found


def require(command: str, *, package: str) -> str:
    """The path of a command: the system's, or the unpacked package's. Skips the test if neither."""
    found = shutil.which(command)
    if found is None:
        below = unpacked(package)
        found = shutil.which(command, path=f"{below}/usr/bin:{below}/usr/sbin:{below}/bin")
    assert found, f"Debian's package {package} has no command {command}"
    return found


def unpacked(package: str) -> Path:
    """The directory of an unpacked Debian package, fetched once. Skips the test if it cannot be.

    Installing needs root and would start services, as Debian's prometheus does. Unpacking needs
    neither, but works only for programs whose package has everything that they need.
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
                os.rename(f"{fresh}/files", there)  # rename is atomic, so the directory is complete
    return there


def _download(package: str, directory: str) -> None:
    # As root, apt would switch to a user who may not write here.
    command = ["apt-get", "-o", "APT::Sandbox::User=root", "download", package]
    try:
        try:
            run(command, cwd=directory)
        except CheckFailed:
            run(["apt-get", "update"])  # a fresh image has no package lists
            run(command, cwd=directory)
    except CheckFailed as error:
        pytest.skip(f"needs Debian's package {package}: {error}")
