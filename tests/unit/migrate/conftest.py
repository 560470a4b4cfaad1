"""A conversion of a text, by the command as a shell sees it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tailrace.cli import main


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a command has written. ``config`` is empty if it has refused the file."""

    code: int
    text: str
    error: str

    @property
    def config(self) -> dict[str, Any]:
        return yaml.safe_load(self.text) or {}

    @property
    def scope(self) -> dict[str, Any]:
        (scope,) = self.config["scopes"]
        return dict(scope)

    @property
    def handler(self) -> dict[str, Any]:
        (handler,) = self.config["handlers"].values()
        return dict(handler)

    @property
    def lost(self) -> dict[str, str]:
        """Why options are not carried over, by their names."""
        lines = self.error.splitlines()
        named = [each.partition("not carried over: ")[2].partition(": ") for each in lines]
        return {name: why for name, _, why in named if name}


Migrate = Callable[..., Migrated]


@pytest.fixture
def migrate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Migrate:
    """Runs ``tailrace migrate`` on a text."""

    def run(peer: str, text: str | bytes, *more: str) -> Migrated:
        file = tmp_path / "peer"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        code = main(["migrate", "--from", peer, str(file), *more])
        output = capsys.readouterr()
        return Migrated(code, output.out, output.err)

    return run
