"""Fixtures of the tests of handlers."""

from collections.abc import Callable
from pathlib import Path
from textwrap import indent
from typing import NamedTuple

import pytest

from tailrace.cli import main

CONFIGURATION = """\
mongodb: {uri: mongodb://localhost/}
scopes: [{name: orders, database: shop, collection: orders, full_document: lookup}]
routes: [{scope: orders, handlers: [mine]}]
handlers:
  mine:
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a lake that does not exist yet."""
    return tmp_path / "lake"


class Checked(NamedTuple):
    """What ``tailrace check`` has printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def mistake(self) -> str:
        """The only mistake, from its path on."""
        assert self.code == 2
        (line,) = self.err.splitlines()
        return line.partition("config.yaml: ")[2]


Check = Callable[[str], Checked]


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Check:
    """Checks a configuration whose handler ``mine`` is given as YAML."""

    def check(handler: str) -> Checked:
        file = tmp_path / "config.yaml"
        file.write_text(CONFIGURATION + indent(handler, "    "))
        return Checked(main(["check", "--config", str(file)]), *capsys.readouterr())

    return check
