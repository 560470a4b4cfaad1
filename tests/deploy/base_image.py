"""A stand-in for the base image, for machines that reach no registry of images.

Debian by debootstrap, of the release that this machine has, with a Python that is found on this
machine (or else Debian's own), and with what this machine has to know to fetch packages: its
certificates and pip's settings. None of that is in the Dockerfile.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from tests.machine import CheckFailed, run

PYTHON = "python3.12"
_LIBRARIES = (
    "ca-certificates,netbase,tzdata,libbz2-1.0,libexpat1,libffi8,liblzma5,libncursesw6,"
    "libreadline8,libsqlite3-0,libssl3,libuuid1,zlib1g"
)
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_PIP_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "proxy")


def make(root: Path) -> str:
    """Makes the tree of the stand-in at ``root``; says what is in it."""
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    prefix = _python_prefix()
    include = _LIBRARIES if prefix else f"{_LIBRARIES},python3,python3-venv"
    run(
        [
            "debootstrap",
            "--variant=minbase",
            f"--include={include}",
            release,
            str(root),
            _mirror(release),
        ]
    )
    if prefix:
        _copy_python(prefix, root)
    else:
        for name in ("python", "python3"):
            (root / "usr/local/bin" / name).symlink_to("/usr/bin/python3")
    if Path(_CERTIFICATES).exists():
        shutil.copyfile(_CERTIFICATES, f"{root}{_CERTIFICATES}")
    (root / "etc/pip.conf").write_text(_pip_settings())
    version = run(["chroot", str(root), "/usr/local/bin/python", "--version"]).strip()
    return f"{version} on Debian {release}"


def _mirror(release: str) -> str:
    """Where this machine's own packages of the release come from."""
    targets = run(["apt-get", "indextargets", "--format", "$(CODENAME) $(COMPONENT) $(REPO_URI)"])
    for line in targets.splitlines():
        codename, component, uri = line.split(" ", 2)
        if (codename, component) == (release, "main"):
            return uri
    raise CheckFailed(f"apt knows no source of Debian {release}")


def _python_prefix() -> Path | None:
    """The installation of a Python of the image's version that is not the system's."""
    for name in (
        sys.executable,
        PYTHON,
        *map(str, Path.home().glob(f".pyenv/versions/*/bin/{PYTHON}")),
    ):
        found = shutil.which(name)
        if found is None:
            continue
        ask = "import json, sys; print(json.dumps([sys.base_prefix, sys.version_info[:2]]))"
        done = subprocess.run([found, "-c", ask], capture_output=True, check=False)
        if done.returncode:
            continue
        prefix, version = json.loads(done.stdout)
        if f"python{version[0]}.{version[1]}" == PYTHON and prefix != "/usr":
            return Path(prefix)
    return None


def _copy_python(prefix: Path, root: Path) -> None:
    """The interpreter and its library, as the official image has them: at /usr/local."""
    local = root / "usr/local"
    shutil.copy2(prefix / "bin" / PYTHON, local / "bin" / PYTHON)
    (local / "lib").mkdir(exist_ok=True)
    for library in (prefix / "lib").glob("libpython3*.so*"):
        shutil.copy2(library, local / "lib" / library.name, follow_symlinks=False)
    left_out = shutil.ignore_patterns(
        "site-packages", "test", "tests", "idlelib", "tkinter", "_tkinter*", "__pycache__", "*.a"
    )
    shutil.copytree(prefix / "lib" / PYTHON, local / "lib" / PYTHON, ignore=left_out, symlinks=True)
    (local / "lib" / PYTHON / "site-packages").mkdir()
    for name in ("python", "python3"):
        (local / "bin" / name).symlink_to(PYTHON)
    run(["chroot", str(root), "/sbin/ldconfig"])
    # Away from this machine's settings and into those of the tree.
    environ = {
        "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    run(["chroot", str(root), "python", "-m", "ensurepip"], env=environ)


def _pip_settings() -> str:
    """What pip is told on this machine, by whichever way, as a file of the stand-in."""
    settings = {"cert": _CERTIFICATES, "disable-pip-version-check": "true"}
    for line in run([sys.executable, "-m", "pip", "config", "list"]).splitlines():
        key, _, value = line.partition("=")
        name, text = key.rpartition(".")[2], value.strip("'")
        if (
            name in _PIP_SETTINGS and "file:" not in text
        ):  # a directory of this machine is not there
            settings[name] = text
    return "[global]\n" + "".join(f"{name} = {text}\n" for name, text in settings.items())
