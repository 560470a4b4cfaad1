"""The programs of the demo, Java and mongod: found, installed, or asked for; with programs that
only say what they do."""

from __future__ import annotations

import os
import re
import shutil
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tailrace.demo import java, mongod
from tailrace.demo.display import Display
from tailrace.demo.mongod import ready_mongod
from tailrace.demo.pipeline_process import ready_java
from tailrace.errors import ConfigurationError

RUNS = "echo db version v6.0.5"
LACKS_CURL = "exit 127"
LDD = "echo 'libcurl.so.4 => not found'; echo 'libc.so.6 => /lib/libc.so.6 (0x00)'"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path with nothing on it but what a test puts there; the user is root."""
    directory, tools = tmp_path / "bin", tmp_path / "tools"
    directory.mkdir()
    tools.mkdir()
    for name in ("cat", "touch", "cp"):
        (tools / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", f"{directory}:{tools}")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_INSTALLED", tmp_path / "jvm")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return directory


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def apt(programs: Path, package: str, then: str = "") -> None:
    """A Debian that has one of the packages."""
    program(programs / "apt-cache", f'test "$2" = {package}')
    program(programs / "apt-get", f'echo "apt-get $*"\nif test "$1" = install; then\n:\n{then}\nfi')


class TestJava:
    @staticmethod
    def java_of(home: Path, version: str) -> None:
        says = f"    java.home = {home}\n    java.specification.version = {version}"
        program(home / "bin" / "java", f"cat >&2 <<END\n{says}\nEND")

    async def ready(self, tmp_path: Path) -> str:
        """What the demo says when it comes to its tables and they cannot be made."""
        printed = StringIO()
        display = Display(Console(file=printed, width=500), 1)
        assert await ready_java(display, tmp_path / "packages.log") is None
        return printed.getvalue()

    async def test_the_newest_that_is_new_enough(
        self, tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """JAVA_HOME and the path come first, unless they are too old or broken."""
        assert await java.find_java() is None
        self.java_of(tmp_path / "jvm" / "java-8", "1.8")
        self.java_of(tmp_path / "old", "11")
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
        program(programs / "java", "exit 1")
        program(tmp_path / "jvm" / "other" / "bin" / "java", "echo java.home = /nowhere")
        assert await java.find_java() is None
        self.java_of(tmp_path / "jvm" / "java-17", "17")
        assert await java.find_java() == tmp_path / "jvm" / "java-17"
        self.java_of(tmp_path / "mine", "21")
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "mine"))
        assert await java.find_java() == tmp_path / "mine"

    @pytest.mark.parametrize(
        ("package", "then", "said"),
        [
            ("openjdk-21-jre-headless", "", "was installed and does not run"),
            ("openjdk-17-jre-headless", "exit 100", "17-jre-headless ended with code 100"),
            ("none-of-ours", "", "has no package openjdk-17.* or default-jre"),
        ],
    )
    async def test_the_first_package_that_there_is_gets_installed(
        self, tmp_path: Path, programs: Path, package: str, then: str, said: str
    ) -> None:
        """Debian 13 has no 17; or there is no network, a held package, an old system."""
        apt(programs, package, then)
        assert re.search(said, await self.ready(tmp_path))
        log = (tmp_path / "packages.log").read_text().splitlines()
        assert log[0] == "apt-get update"
        installed = f"apt-get install -y --no-install-recommends {package}"
        assert log[1:] == ([installed] if package.startswith("openjdk") else [])

    @pytest.mark.parametrize(
        ("user", "manager", "command"),
        [
            (1000, "apt-get", "sudo apt-get install -y --no-install-recommends openjdk-17-jre"),
            (0, "dnf", "and set JAVA_HOME"),
        ],
    )
    async def test_where_nothing_may_be_installed_the_command_is_said(
        self,
        tmp_path: Path,
        programs: Path,
        monkeypatch: pytest.MonkeyPatch,
        user: int,
        manager: str,
        command: str,
    ) -> None:
        program(programs / manager, f"touch {tmp_path}/touched")
        monkeypatch.setattr(os, "geteuid", lambda: user)
        said = await self.ready(tmp_path)
        assert command in said
        assert "No tables are made" in said
        assert not (tmp_path / "touched").exists()


class TestMongod:
    @pytest.fixture
    def wheel(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Where the wheel's program is; a test writes it."""
        path = tmp_path / "wheel" / "mongod"

        class Distribution:
            def locate_file(self, inside: str) -> Path:
                assert inside == "fiftyone/db/bin/mongod"
                return path

        monkeypatch.setattr(mongod.importlib.metadata, "distribution", lambda name: Distribution())
        return path

    async def ready(self, tmp_path: Path, said: list[str] | None = None) -> Path:
        return await ready_mongod(([] if said is None else said).append, tmp_path / "packages.log")

    async def test_the_wheels_program_comes_first(
        self, tmp_path: Path, programs: Path, wheel: Path
    ) -> None:
        """Everybody has the same version, whatever else is on the path."""
        program(programs / "mongod", RUNS)
        program(wheel, RUNS)
        assert await self.ready(tmp_path) == wheel

    async def test_a_mongod_on_the_path_is_taken_where_the_wheel_does_not_run(
        self, tmp_path: Path, programs: Path, wheel: Path
    ) -> None:
        """Another processor, an older C library."""
        program(wheel, "exit 1")
        on_path = program(programs / "mongod", RUNS)
        assert await self.ready(tmp_path) == on_path

    async def test_a_missing_library_is_installed_as_root(
        self, tmp_path: Path, programs: Path, wheel: Path
    ) -> None:
        """A slim image of Debian lacks libcurl."""
        program(wheel, LACKS_CURL)
        better = program(tmp_path / "better", RUNS)
        program(programs / "ldd", LDD)
        program(programs / "apt-cache", 'test "$2" = libcurl4')
        program(programs / "apt-get", f'test "$1" = update || cp {better} {wheel}')
        said: list[str] = []
        assert await self.ready(tmp_path, said) == wheel
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
        self,
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
            await self.ready(tmp_path)
        assert not (tmp_path / "touched").exists()

    async def test_an_installation_that_fails_is_told(
        self, tmp_path: Path, programs: Path, wheel: Path
    ) -> None:
        """No network, a held package."""
        program(wheel, LACKS_CURL)
        program(programs / "ldd", LDD)
        program(programs / "apt-cache", "exit 0")
        program(programs / "apt-get", "exit 100")
        with pytest.raises(ConfigurationError, match=r"could not be installed: .*code 100"):
            await self.ready(tmp_path)

    @pytest.mark.usefixtures("programs")
    async def test_where_there_is_no_mongod_one_line_says_what_to_do(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The extra, or a replica set of one's own."""

        def not_installed(name: str) -> None:
            raise mongod.importlib.metadata.PackageNotFoundError(name)

        monkeypatch.setattr(mongod.importlib.metadata, "distribution", not_installed)
        with pytest.raises(ConfigurationError, match=r"tailrace\[demo\].*--uri URI") as raised:
            await self.ready(tmp_path)
        assert "\n" not in str(raised.value)
