"""A working directory with a configuration for commands."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Configure = Callable[..., None]
"""Writes a configuration; keywords replace whole sections, ``file`` is its path."""

CONFIGURATION = {
    "mongodb": {"uri": "mongodb://me:hush-hush@localhost:1/?replicaSet=rs0"},
    "scopes": [{"name": "orders", "database": "shop", "collection": "orders"}],
    "handlers": {"log": {"type": "log"}},
    "routes": [{"scope": "orders", "handlers": ["log"]}],
}


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Changes to a directory with a ``config.yaml``, which the returned function replaces."""

    def write(file: str = "config.yaml", **sections: Any) -> None:
        Path(file).write_text(yaml.safe_dump({**CONFIGURATION, **sections}))

    monkeypatch.chdir(tmp_path)
    write()
    return write
