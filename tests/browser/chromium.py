"""Debian's Chromium for Playwright: looked for, installed where that is allowed, or a skip."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""It talks to nobody but the page's server, and needs no privileges to start."""

_SECONDS = 600


def chromium() -> str:
    """The browser's path; skips with the reason where there is none and none can be installed."""
    found = shutil.which("chromium")
    if found is None:
        _install("chromium", "fonts-dejavu-core")
        found = shutil.which("chromium")
    if found is None:
        pytest.skip("needs Debian's chromium, and apt-get did not install it")
    return found


def _install(*packages: str) -> None:
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        pytest.skip(f"needs {packages[0]}: install it ('apt-get install {packages[0]}')")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update"],
        ["apt-get", "install", "--yes", "--no-install-recommends", *packages],
    ):
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        if done.returncode:
            reason = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
            pytest.skip(f"needs {packages[0]}, which {command[1]} refused: {reason[0]}")
