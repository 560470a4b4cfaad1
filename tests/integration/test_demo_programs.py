"""The programs that the demo needs, Java and mongod, are found or named. Here they are scripts."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tailrace.demo import programs
from tailrace.demo.programs import find_mongod, require_java
from tailrace.errors import ConfigurationError
from tests.checkout import ROOT

SYSTEM = {name: shutil.which(name) or name for name in ("sh", "grep", "make")}
RUNS = "echo db version v6.0.5"
LACKS_CURL = "echo 'error while loading shared libraries: libcurl.so.4: cannot open' >&2; exit 127"


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A search path with only what a test puts there."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return directory


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the wheel's program, which a test creates."""
    path = tmp_path / "wheel" / "mongod"

    class Distribution:
        def locate_file(self, inside: str) -> Path:
            assert inside == "fiftyone/db/bin/mongod"
            return path

    monkeypatch.setattr(programs.importlib.metadata, "distribution", lambda name: Distribution())
    return path


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_a_missing_java_is_named_with_its_package(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match=r"no java on .*openjdk-17-jre-headless"):
        require_java()
    program(path / "java", "exit 1")
    require_java()
    (path / "java").unlink()
    monkeypatch.setenv("JAVA_HOME", "/opt/java")
    require_java()


@pytest.mark.parametrize("wheel_runs", [True, False])
async def test_the_mongod_of_the_wheel_comes_before_that_on_the_path(
    path: Path, wheel: Path, wheel_runs: bool
) -> None:
    """All users get one version. The path is for other processors and older C libraries."""
    on_path = program(path / "mongod", RUNS)
    program(wheel, RUNS if wheel_runs else "exit 1")
    assert await find_mongod() == (wheel if wheel_runs else on_path)


async def test_a_library_that_mongod_lacks_is_named_with_its_package(wheel: Path) -> None:
    """A slim Debian image lacks libcurl."""
    program(wheel, LACKS_CURL)
    with pytest.raises(ConfigurationError, match=r"libcurl\.so\.4.*libcurl4.*demo --uri") as raised:
        await find_mongod()
    assert "\n" not in str(raised.value)


async def test_without_any_mongod_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_installed(name: str) -> None:
        raise programs.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(programs.importlib.metadata, "distribution", not_installed)
    with pytest.raises(
        ConfigurationError, match=r"'\.\[demo\]' in a checkout.*--uri URI"
    ) as raised:
        await find_mongod()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("user", "missing", "calls"),
    [
        (0, "nothing", []),
        (0, "java", ["update", "openjdk-17-jre-headless", "default-jre-headless"]),
        (
            0,
            "libcurl java",
            ["update", "libcurl4", "openjdk-17-jre-headless", "default-jre-headless"],
        ),
        (1000, "libcurl java", []),
    ],
)
def test_make_installs_what_is_missing_as_root(
    path: Path, user: int, missing: str, calls: list[str]
) -> None:
    """Debian 13 has no OpenJDK 17, so the default Java is next. Without root nothing is tried."""
    for name in ("sh", "grep"):
        (path / name).symlink_to(SYSTEM[name])
    program(path / "id", f"echo {user}")
    program(path / "ldconfig", "" if "libcurl" in missing else "echo 'libcurl.so.4 (libc6)'")
    program(path / "apt-get", f'echo "$*" >> {path}/log; case "$*" in *openjdk*) exit 100; esac')
    if "java" not in missing:
        program(path / "java", "")
    (path / "log").touch()
    subprocess.run([SYSTEM["make"], "--directory", ROOT, "packages"], check=True)
    assert [line.split()[-1] for line in (path / "log").read_text().splitlines()] == calls
