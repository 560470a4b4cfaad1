"""The unit of systemd is one that systemd takes, and fits the program and its own promises."""

import re
import subprocess
from pathlib import Path

import pytest

from tailrace.cli.commands import COMMANDS
from tailrace.shutdown import CLOSING_SECONDS
from tests.checkout import ROOT
from tests.packages import require_installed

UNIT = ROOT / "deploy/systemd/tailrace.service"
PAIRS = re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE)
VALUES = dict(PAIRS)
INSTALL = (ROOT / "docs/install.md").read_text()
MOST_EXPOSED = 20
"""Tenths: the exposure that `systemd-analyze security` may find. 12 is what the unit has."""


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with programs that are here; a unit's name is that of its file."""
    path = tmp_path / UNIT.name
    path.write_text(re.sub(r"^(Exec\w+)=\S+", r"\1=/bin/true", UNIT.read_text(), flags=re.M))
    return path


def analyzed(*words: str | Path) -> tuple[int, str]:
    program = require_installed("systemd-analyze", package="systemd")
    done = subprocess.run(
        [program, "--no-pager", *words], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_systemd_takes_every_key(unit: Path) -> None:
    assert analyzed("verify", "--man=no", unit) == (0, "")


def test_it_is_hardened(unit: Path) -> None:
    code, text = analyzed("security", "--offline=true", f"--threshold={MOST_EXPOSED}", unit)
    assert code == 0, text


def test_its_programs_are_commands() -> None:
    for key in ("ExecStart", "ExecReload"):
        program, command = VALUES[key].split()
        assert program == "/opt/tailrace/bin/tailrace"
        assert command in COMMANDS


def test_it_is_killed_only_after_it_had_time_to_drain() -> None:
    reference = (ROOT / "docs/configuration.md").read_text()
    (grace,) = re.findall(r"^\| `grace_seconds` \| [^|]+ \| `([\d.]+)` ", reference, re.M)
    assert float(VALUES["TimeoutStopSec"]) > float(grace) + CLOSING_SECONDS


def test_a_wrong_configuration_is_not_tried_again() -> None:
    assert (VALUES["Restart"], VALUES["RestartPreventExitStatus"]) == ("on-failure", "2")


def test_what_the_leases_of_the_store_read_stays_readable() -> None:
    assert "ProcSubset" not in VALUES


def test_user_and_paths_are_those_of_the_steps() -> None:
    sysusers = UNIT.with_name("tailrace.sysusers").read_text()
    assert sysusers.splitlines()[-1].split()[:2] == ["u", VALUES["User"]]
    assert VALUES["WorkingDirectory"] == f"/var/lib/{VALUES['StateDirectory']}"
    for path in ("/opt/tailrace", "/etc/tailrace/config.yaml", UNIT.name, "tailrace.sysusers"):
        assert path in INSTALL, path
