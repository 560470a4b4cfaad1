"""Where a Debian package cannot be had, its tests are skipped, and say why."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packages import require, unpacked


def test_without_apt_a_test_is_skipped_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match="needs Debian's package prometheus, and there"):
        require("promtool", package="prometheus")


def test_what_is_in_the_cache_is_not_fetched_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    there = tmp_path / "tailrace-tests" / "some-package"
    there.mkdir(parents=True)
    assert unpacked("some-package") == there


def test_what_the_system_has_is_taken_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = tmp_path / "promtool"
    command.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert require("promtool", package="prometheus") == str(command)
