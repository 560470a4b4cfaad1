"""Java for Spark, installed where there is none and the demo may do so."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from tailrace.demo import packages
from tailrace.errors import TailraceError

_DEBIAN = ("openjdk-17-jre-headless", "default-jre-headless")
"""Debian 13 has no 17, and its default is newer; the default of Ubuntu 22.04 is too old."""


async def ready_java(say: Callable[[str], None], log: Path) -> None:
    """Installs a Java where there is none. The pipeline itself names what is missing otherwise.

    ``log`` is for the output of the package manager. Raises :class:`TailraceError`.
    """
    if "JAVA_HOME" in os.environ or shutil.which("java") or not packages.may_install():
        return
    say(f"Spark needs Java, and there is none here: {packages.command(_DEBIAN[0])}")
    try:
        await packages.install(_DEBIAN[0], log=log)
    except TailraceError:
        await packages.install(_DEBIAN[1], log=log)
