"""Fixtures for the tests of landing."""

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a lake that does not exist yet."""
    return tmp_path / "lake"
