"""Java for the demo: found, installed, or asked for; with programs that only say what they do."""

from __future__ import annotations

import os
import shutil
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tailrace.demo import java
from tailrace.demo.directory import Layout
from tailrace.demo.display import Display
from tailrace.demo.tabulation import tabulate
from tailrace.errors import TailraceError


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path with nothing on it but what a test puts there."""
    directory, tools = tmp_path / "bin", tmp_path / "tools"
    directory.mkdir()
    tools.mkdir()
    (tools / "cat").symlink_to(shutil.which("cat") or "cat")
    monkeypatch.setenv("PATH", f"{directory}:{tools}")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_INSTALLED", tmp_path / "jvm")
    return directory


def program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def java_of(home: Path, version: str) -> None:
    says = f"    java.home = {home}\n    java.specification.version = {version}"
    program(home / "bin" / "java", f"cat >&2 <<END\n{says}\nEND")


def apt(programs: Path, package: str, then: str = "") -> None:
    """A Debian that has one of the packages."""
    program(programs / "apt-cache", f'test "$2" = {package}')
    program(programs / "apt-get", f'echo "apt-get $*"\nif test "$1" = install; then\n:\n{then}\nfi')


async def test_the_newest_that_is_new_enough(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JAVA_HOME and the path come first, unless they are too old or broken."""
    assert await java.find_java(tmp_path / "jvm") is None
    java_of(tmp_path / "jvm" / "java-8", "1.8")
    java_of(tmp_path / "old", "11")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    program(programs / "java", "exit 1")
    program(tmp_path / "jvm" / "other" / "bin" / "java", "echo java.home = /nowhere")
    assert await java.find_java(tmp_path / "jvm") is None
    java_of(tmp_path / "jvm" / "java-17", "17")
    assert await java.find_java(tmp_path / "jvm") == tmp_path / "jvm" / "java-17"
    java_of(tmp_path / "mine", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "mine"))
    assert await java.find_java(tmp_path / "jvm") == tmp_path / "mine"


async def test_the_first_package_that_there_is_gets_installed(
    tmp_path: Path, programs: Path
) -> None:
    """Debian 13 has no 17."""
    apt(programs, "openjdk-21-jre-headless")
    await java.install_java(tmp_path / "log")
    lines = (tmp_path / "log").read_text().splitlines()
    installed = "apt-get install -y --no-install-recommends openjdk-21-jre-headless"
    assert lines == ["apt-get update", installed]


@pytest.mark.parametrize(
    ("package", "then", "reason"),
    [
        ("openjdk-17-jre-headless", "exit 100", "install openjdk-17-jre-headless ended with code"),
        ("none-of-ours", "", "has no package openjdk-17.* or default-jre"),
    ],
)
async def test_an_installation_that_fails_is_named(
    tmp_path: Path, programs: Path, package: str, then: str, reason: str
) -> None:
    """No network, a held package, an old system."""
    apt(programs, package, then)
    with pytest.raises(TailraceError, match=reason):
        await java.install_java(tmp_path / "log")


async def finish(tmp_path: Path) -> str:
    """What the demo says when it comes to its tables and they cannot be made."""
    printed = StringIO()
    display = Display(Console(file=printed, width=500), 1)
    assert not await tabulate(display, Layout(tmp_path), "shop", {})
    return printed.getvalue()


@pytest.mark.parametrize(
    ("user", "manager", "command"),
    [
        (1000, "apt-get", "sudo apt-get install -y --no-install-recommends openjdk-17-jre"),
        (0, "dnf", "sudo dnf install java"),
        (0, "none", "and set JAVA_HOME"),
    ],
)
async def test_without_java_the_command_is_said(
    tmp_path: Path,
    programs: Path,
    monkeypatch: pytest.MonkeyPatch,
    user: int,
    manager: str,
    command: str,
) -> None:
    """Where nothing may be installed, nothing is."""
    program(programs / manager, f"touch {tmp_path}/touched")
    monkeypatch.setattr(os, "geteuid", lambda: user)
    said = await finish(tmp_path)
    assert command in said
    assert "No tables are made" in said
    assert not (tmp_path / "touched").exists()


async def test_an_installation_that_does_not_help_is_told(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failed, or done without a Java that runs."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    apt(programs, "default-jre-headless", "exit 1")
    assert "could not be installed" in await finish(tmp_path)
    apt(programs, "default-jre-headless")
    assert "was installed and does not run" in await finish(tmp_path)
