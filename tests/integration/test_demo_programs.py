"""The demo's programs, Java and mongod: found, installed or named. Here all of them are scripts."""

import os
import shutil
from pathlib import Path

import pytest

from tailrace.demo import mongod
from tailrace.demo.mongod import ready_mongod
from tailrace.demo.packages import ready_java
from tailrace.errors import ConfigurationError, TailraceError

RUNS = "echo db version v6.0.5"
LACKS_CURL = "echo 'error while loading shared libraries: libcurl.so.4: cannot open' >&2; exit 127"
APT = 'echo "apt-get $*"\nif test "$1" = install; then\n{then}\nfi'


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A search path with only what a test puts there; the user is root."""
    directory, tools = tmp_path / "bin", tmp_path / "tools"
    directory.mkdir()
    tools.mkdir()
    for name in ("touch", "cp"):
        (tools / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", f"{directory}:{tools}")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return directory


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the wheel's program, which a test creates."""
    path = tmp_path / "wheel" / "mongod"

    class Distribution:
        def locate_file(self, inside: str) -> Path:
            assert inside == "fiftyone/db/bin/mongod"
            return path

    monkeypatch.setattr(mongod.importlib.metadata, "distribution", lambda name: Distribution())
    return path


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("missing", ["openjdk-17-jre-headless", "all"])
async def test_java_is_installed_where_there_is_none(
    tmp_path: Path, programs: Path, missing: str
) -> None:
    """Debian 13 has no Java 17; or there is no network. An installed Java is not replaced."""
    program(programs / "apt-get", APT.format(then=f'test "$4" != {missing} -a {missing} != all'))
    said: list[str] = []
    log = tmp_path / "packages.log"
    if missing == "all":
        with pytest.raises(TailraceError, match="default-jre-headless ended with code 1; see"):
            await ready_java(said.append, log)
    else:
        await ready_java(said.append, log)
    installing = "apt-get install -y --no-install-recommends {}-jre-headless"
    both = [installing.format(name) for name in ("openjdk-17", "default")]
    assert [line for line in log.read_text().splitlines() if "install" in line] == both
    assert installing.format("openjdk-17") in said[0]
    program(programs / "java", "exit 1")
    await ready_java(said.append, log)
    assert len(said) == 1


@pytest.mark.parametrize("wheel_runs", [True, False])
async def test_the_wheels_program_comes_first(
    tmp_path: Path, programs: Path, wheel: Path, wheel_runs: bool
) -> None:
    """All users get one version. The path is for other processors and older C libraries."""
    on_path = program(programs / "mongod", RUNS)
    program(wheel, RUNS if wheel_runs else "exit 1")
    found = await ready_mongod(print, tmp_path / "packages.log")
    assert found == (wheel if wheel_runs else on_path)


@pytest.mark.parametrize(
    ("user", "manager", "then", "message"),
    [
        (0, "apt-get", "cp {better} {wheel}", None),
        (0, "apt-get", "exit 100", r"libcurl\.so\.4.*ended with code 100"),
        (1000, "apt-get", "touch {touched}", r"libcurl\.so\.4.*: sudo apt-get install .* libcurl4"),
        (0, "dnf", "touch {touched}", r"libcurl\.so\.4"),
    ],
)
async def test_a_missing_library_is_installed_or_named(
    tmp_path: Path,
    programs: Path,
    wheel: Path,
    monkeypatch: pytest.MonkeyPatch,
    user: int,
    manager: str,
    then: str,
    message: str | None,
) -> None:
    """A slim Debian image lacks libcurl. Only root can install it, and only on Debian."""
    monkeypatch.setattr(os, "geteuid", lambda: user)
    program(wheel, LACKS_CURL)
    touched, better = tmp_path / "touched", program(tmp_path / "better", RUNS)
    script = then.format(better=better, wheel=wheel, touched=touched)
    program(programs / manager, APT.format(then=script))
    said: list[str] = []
    if message is None:
        assert await ready_mongod(said.append, tmp_path / "packages.log") == wheel
        assert "apt-get install -y --no-install-recommends libcurl4" in said[0]
    else:
        with pytest.raises(ConfigurationError, match=message + ".*tailrace demo --uri URI"):
            await ready_mongod(said.append, tmp_path / "packages.log")
    assert not touched.exists()


@pytest.mark.usefixtures("programs")
async def test_without_any_mongod_one_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_installed(name: str) -> None:
        raise mongod.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(mongod.importlib.metadata, "distribution", not_installed)
    with pytest.raises(ConfigurationError, match=r"\.\[demo\].*--uri URI") as raised:
        await ready_mongod(print, tmp_path / "packages.log")
    assert "\n" not in str(raised.value)
