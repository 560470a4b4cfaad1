"""A small disk for one test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.disk import small_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as mounted:
        if not mounted:
            pytest.skip("this user may not mount a file system")
        yield tmp_path / "disk"
