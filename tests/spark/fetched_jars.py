"""Jars for tests, which Maven fetches once per user."""

import hashlib
from pathlib import Path

from tailrace.pipeline import jars
from tests.machine import exclusive

HERE = Path(__file__).parent


def fetched(name: str) -> list[Path]:
    """The jars of the list ``NAME.txt`` in this directory, in its order."""
    artifacts = jars.listed((HERE / f"{name}.txt").read_text())
    there = jars.directory().with_name(name)
    with exclusive():
        found = [there / ("-".join(each.split(":")[1:]) + ".jar") for each in artifacts]
        if [_digest(path) for path in found] == [*artifacts.values()]:
            return found
        return jars.fetch(there, artifacts)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
