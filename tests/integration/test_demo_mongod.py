"""The demo's mongod: found, completed with what it lacks, or named; with programs that only say."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tailrace.demo import mongod
from tailrace.demo.mongod import ready_mongod
from tailrace.errors import ConfigurationError

RUNS = "echo db version v6.0.5"
LACKS_CURL = "exit 127"
LDD = "echo 'libcurl.so.4 => not found'; echo 'libc.so.6 => /lib/libc.so.6 (0x00)'"


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path with nothing on it but what a test puts there."""
    directory, tools = tmp_path / "bin", tmp_path / "tools"
    directory.mkdir()
    tools.mkdir()
    for name in ("cat", "touch", "cp"):
        (tools / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", f"{directory}:{tools}")
    return directory


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the wheel's program is; a test writes it."""
    path = tmp_path / "wheel" / "mongod"

    class Distribution:
        def locate_file(self, inside: str) -> Path:
            assert inside == "fiftyone/db/bin/mongod"
            return path

    monkeypatch.setattr(mongod.importlib.metadata, "distribution", lambda name: Distribution())
    return path


async def ready(tmp_path: Path, said: list[str] | None = None) -> Path:
    return await ready_mongod(([] if said is None else said).append, tmp_path / "packages.log")


async def test_the_wheels_program_comes_first(tmp_path: Path, programs: Path, wheel: Path) -> None:
    """Everybody has the same version, whatever else is on the path."""
    program(programs / "mongod", RUNS)
    program(wheel, RUNS)
    assert await ready(tmp_path) == wheel


async def test_a_mongod_on_the_path_is_taken_where_the_wheel_does_not_run(
    tmp_path: Path, programs: Path, wheel: Path
) -> None:
    """Another processor, an older C library."""
    program(wheel, "exit 1")
    on_path = program(programs / "mongod", RUNS)
    assert await ready(tmp_path) == on_path


async def test_a_missing_library_is_installed_as_root(
    tmp_path: Path, programs: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slim image of Debian lacks libcurl."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    program(wheel, LACKS_CURL)
    better = program(tmp_path / "better", RUNS)
    program(programs / "ldd", LDD)
    program(programs / "apt-cache", 'test "$2" = libcurl4')
    program(programs / "apt-get", f'test "$1" = update || cp {better} {wheel}')
    said: list[str] = []
    assert await ready(tmp_path, said) == wheel
    [line] = said
    assert "libcurl.so.4" in line
    assert "apt-get install -y --no-install-recommends libcurl4" in line


@pytest.mark.parametrize(
    ("user", "manager", "expected"),
    [
        (1000, "apt-get", r"libcurl\.so\.4.*sudo apt-get install .* libcurl4"),
        (0, "dnf", r"libcurl\.so\.4"),
    ],
)
async def test_a_missing_library_is_named_where_nothing_may_be_installed(
    tmp_path: Path,
    programs: Path,
    wheel: Path,
    monkeypatch: pytest.MonkeyPatch,
    user: int,
    manager: str,
    expected: str,
) -> None:
    """The command for a person, and the way without it."""
    monkeypatch.setattr(os, "geteuid", lambda: user)
    program(wheel, LACKS_CURL)
    program(programs / "ldd", LDD)
    program(programs / manager, f"touch {tmp_path}/touched")
    with pytest.raises(ConfigurationError, match=expected + ".*tailrace demo --uri URI"):
        await ready(tmp_path)
    assert not (tmp_path / "touched").exists()


async def test_an_installation_that_fails_is_told(
    tmp_path: Path, programs: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No network, a held package."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    program(wheel, LACKS_CURL)
    program(programs / "ldd", LDD)
    program(programs / "apt-cache", "exit 0")
    program(programs / "apt-get", "exit 100")
    with pytest.raises(ConfigurationError, match=r"could not be installed: .*code 100"):
        await ready(tmp_path)


@pytest.mark.usefixtures("programs")
async def test_where_there_is_no_mongod_one_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra, or a replica set of one's own."""

    def not_installed(name: str) -> None:
        raise mongod.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(mongod.importlib.metadata, "distribution", not_installed)
    with pytest.raises(ConfigurationError, match=r"tailrace\[demo\].*--uri URI") as raised:
        await ready(tmp_path)
    assert "\n" not in str(raised.value)
