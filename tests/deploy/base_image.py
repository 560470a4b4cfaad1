"""A stand-in for the base image, for machines that cannot reach an image registry.

It is Debian by mmdebstrap, of this machine's release, with Debian's Python, and with this
machine's certificates and pip settings to fetch packages. The Dockerfile has none of that.
"""

import platform
import shutil
import sys
from pathlib import Path

from tests.machine import CheckFailed, run

_PACKAGES = "ca-certificates,netbase,tzdata,python3,python3-venv"
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_OWN_CERTIFICATES = "/usr/local/share/ca-certificates"
"""Those that Debian also gives to Java, which Maven runs on."""
_PIP_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "proxy")


def make(root: Path) -> str:
    """Creates the tree of the stand-in at ``root``; returns a description of it."""
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    variant = ("--variant=minbase", f"--include={_PACKAGES}")
    run(["mmdebstrap", *variant, release, str(root), _mirror(release)])
    for name in ("python", "python3"):
        (root / "usr/local/bin" / name).symlink_to("/usr/bin/python3")
    if Path(_OWN_CERTIFICATES).exists():
        shutil.copytree(_OWN_CERTIFICATES, f"{root}{_OWN_CERTIFICATES}", dirs_exist_ok=True)
        run(["chroot", str(root), "update-ca-certificates"])
    if Path(_CERTIFICATES).exists():
        shutil.copyfile(_CERTIFICATES, f"{root}{_CERTIFICATES}")
    (root / "etc/pip.conf").write_text(_pip_settings())
    version = run(["chroot", str(root), "/usr/local/bin/python", "--version"]).strip()
    return f"{version} on Debian {release}"


def _mirror(release: str) -> str:
    """The mirror from which this machine gets its own packages of the release."""
    targets = run(["apt-get", "indextargets", "--format", "$(CODENAME) $(COMPONENT) $(REPO_URI)"])
    for line in targets.splitlines():
        codename, component, uri = line.split(" ", 2)
        if (codename, component) == (release, "main"):
            return uri
    raise CheckFailed(f"apt knows no source of Debian {release}")


def _pip_settings() -> str:
    """The settings of pip on this machine, from any source, as a file of the stand-in."""
    settings = {"cert": _CERTIFICATES, "disable-pip-version-check": "true"}
    for line in run([sys.executable, "-m", "pip", "config", "list"]).splitlines():
        key, _, value = line.partition("=")
        name, text = key.rpartition(".")[2], value.strip("'")
        if (
            name in _PIP_SETTINGS and "file:" not in text
        ):  # refers to a directory of this machine, which is missing there
            settings[name] = text
    return "[global]\n" + "".join(f"{name} = {text}\n" for name, text in settings.items())
