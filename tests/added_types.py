"""Installs packages that add types of handlers, without an installer: a module and its metadata."""

import re
from pathlib import Path

from tests.handlers_page import PAGE, python_block


def install(directory: Path, package: str, *types: str, **modules: str) -> None:
    """Puts a package into ``directory``, which must be on the path.

    ``types`` are its entry points, as ``name = module:row``; ``modules`` are sources by name.
    """
    for name, source in modules.items():
        (directory / f"{name}.py").write_text(source)
    metadata = directory / f"{package.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = "".join(f"{each}\n" for each in types)
    (metadata / "entry_points.txt").write_text(f"[tailrace.handlers]\n{lines}")


def install_documented(directory: Path) -> None:
    """Puts the package of the page about handlers into ``directory``."""
    entry = r'entry-points."tailrace.handlers"\]\n(\w+) = "(\w+):(\w+)"'
    found = re.search(entry, PAGE.read_text())
    assert found is not None
    name, module, row = found.groups()
    source = python_block("destination_type")
    install(directory, "tailrace-archive", f"{name} = {module}:{row}", **{module: source})
