"""The Dockerfile and what it copies, checked without an engine."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.configuration import load

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
LOCKS = sorted((ROOT / "deploy/requirements").glob("*.txt"))
_PINNED = re.compile(r"^([a-z0-9][a-z0-9._-]*)(?:\[[^\]]*\])?==(\S+)", re.MULTILINE)


def test_hadolint_finds_no_fault() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [hadolint, "--no-color", ROOT / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_every_target_runs_as_the_same_numbered_user() -> None:
    found = re.findall(r"^FROM (\S+) AS (\S+)\n(.*?)(?=^FROM |\Z)", DOCKERFILE, re.M | re.S)
    stages = {name: (parent, text) for parent, name, text in found}
    assert list(stages)[-1] == "live"
    for target in ("live", "destinations", "lake", "pipeline"):
        said, stage = "", target
        while stage in stages:
            stage, text = stages[stage]
            said = text + said
        assert re.findall(r"^USER (.*)$", said, re.MULTILINE)[-1] == "10001:10001"
        assert re.search(r'^CMD \["', said, re.MULTILINE)


def test_what_is_copied_is_let_through() -> None:
    """.dockerignore excludes everything by default; an omission would fail only in an engine."""
    let_through = [
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    ]
    for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert any(Path(source).is_relative_to(each) for each in let_through), source


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_every_requirement_is_pinned_and_hashed_and_no_address_is_told(lock: Path) -> None:
    text = lock.read_text()
    assert "://" not in text
    joined = text.replace("\\\n", " ")
    requirements = [line for line in joined.splitlines() if re.match(r"[a-z0-9]", line)]
    assert requirements
    for line in requirements:
        assert _PINNED.match(line), line
        assert "--hash=sha256:" in line, line


@pytest.mark.parametrize(
    ("lock", "extras"),
    [
        ("live", []),
        ("destinations", ["postgresql", "kafka", "nats", "redis", "http", "otel"]),
        ("lake", ["lake", "otel"]),
        ("pipeline", ["pipeline", "tables", "iceberg"]),
    ],
)
def test_a_lock_has_what_the_package_asks_for(lock: str, extras: list[str]) -> None:
    """A dependency was added, or its version changed, without `make lock`."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(each for extra in extras for each in optional[extra])]
    text = (ROOT / f"deploy/requirements/{lock}.txt").read_text()
    pinned = dict(_PINNED.findall(text))
    for line in wanted:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        if name == "tailrace":
            continue  # its own extras, whose requirements are locked like the others
        assert name in pinned, f"{line}: run `make lock`"
        assert pinned[name] in requirement.specifier, f"{line}: run `make lock`"


def test_the_environment_overrides_the_configuration() -> None:
    environ = {
        "MONGODB_URI": "mongodb://db",
        "TAILRACE_DATABASE": "shop",
        "TAILRACE_COLLECTION": "orders",
        "TAILRACE_HTTP_PORT": "8080",
        "TAILRACE_GRACE_SECONDS": "60",
        "TAILRACE_FULL_DOCUMENT": "lookup",
    }
    settings = load(ROOT / "deploy/docker/config.yaml", environ)
    (scope,) = settings.scopes
    assert (scope.name, scope.database, scope.collection) == ("shop", "shop", "orders")
    assert scope.full_document == "lookup"
    assert (settings.http.port, settings.shutdown.grace_seconds) == (8080, 60)
    assert settings.routes[0].scope == "shop"
