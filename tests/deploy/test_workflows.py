"""GitHub's workflows fit their schema, call targets of the Makefile, and may do little.

`make release` itself runs in a workflow, for it builds and installs for a minute. Of the targets
that need Docker with buildx, or an account, the commands are compared.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tailrace.version import __version__
from tests.checkout import ROOT
from tests.deploy.manifests import tool

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()
RELEASE = (ROOT / ".github/workflows/release.yml").read_text()
PROGRAM = """\
#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLS"
"""

MAKE = re.compile(r'(?:sudo env CI=true PATH="\$PATH" )?make ([a-z-]+)')

of_each = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def jobs(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())["jobs"]
    return found


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in jobs(path).values() for step in job["steps"]]


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        *(("vendor.github-workflows", path) for path in WORKFLOWS),
        ("vendor.dependabot", ROOT / ".github/dependabot.yml"),
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else "",
)
def test_it_fits_its_schema(schema: str, path: Path) -> None:
    done = subprocess.run(
        [tool("check-jsonschema"), "--builtin-schema", schema, path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@of_each
def test_each_step_is_an_action_or_a_target_that_is_there(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    for step in steps(path):
        if "uses" not in step:
            called = MAKE.fullmatch(step["run"])
            assert called, step
            assert called[1] in targets, step


@of_each
def test_actions_are_pinned_by_commit_and_named_by_version(path: Path) -> None:
    pinned = re.compile(r"uses: [\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    for line in path.read_text().splitlines():
        if "uses:" in line:
            assert pinned.search(line), line


@of_each
def test_a_job_may_only_do_what_it_names_and_ends(path: Path) -> None:
    assert yaml.safe_load(path.read_text())["permissions"] == {}
    for name, job in jobs(path).items():
        assert job["permissions"], name
        assert job["timeout-minutes"] <= 90, name
    for step in steps(path):
        if "actions/checkout@" in step.get("uses", ""):
            assert step["with"] == {"persist-credentials": False}


def test_only_a_release_writes_anything() -> None:
    writing = {
        path.stem
        for path in WORKFLOWS
        for job in jobs(path).values()
        if "write" in job["permissions"].values()
    }
    assert writing == {"release"}


def test_what_is_published_waits_for_an_approval() -> None:
    """The draft of a release is published by a person, too."""
    publishing = {
        name
        for name, job in jobs(ROOT / ".github/workflows/release.yml").items()
        if job.get("environment") == "release"
    }
    assert publishing == {"images", "image-index", "pypi"}
    assert "--draft" in made("draft", TAG="v0", programs=False)


def test_what_the_release_signs_and_uploads_is_what_make_release_writes() -> None:
    written = (ROOT / ".ci/release").read_text()
    for name in re.findall(r"dist/([\w.-]+)$", RELEASE, re.MULTILINE):
        assert f"dist/{name}" in written, name


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where programs that stand in for docker note how they were called."""
    (tmp_path / "docker").write_text(PROGRAM)
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def made(target: str, *, programs: bool = True, **variables: str) -> str:
    """What a target says, or what it would run."""
    words = ["make", "--no-print-directory", *([] if programs else ["--dry-run"]), target]
    done = subprocess.run(
        [*words, *(f"{name}={value}" for name, value in variables.items())],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_image_is_built_with_its_bill_and_provenance_and_pushed(calls: Path) -> None:
    made("images", IMAGE="ghcr.io/Owner/tailrace", ARCH="arm64", PUSH="1")
    lines = calls.read_text().splitlines()
    stages = re.findall(r"^FROM base AS (\w+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert {re.findall(r"--target (\w+)", line)[0] for line in lines} == set(stages)
    for line in lines:
        assert line.startswith("docker buildx build --platform linux/arm64 --target ")
        for words in ("--sbom=true", "--provenance=mode=max", "push=true", __version__):
            assert words in line
        assert re.search(rf"--tag ghcr\.io/owner/tailrace:{__version__}[a-z-]*-arm64 ", line), line


def test_the_images_of_both_architectures_get_one_tag(calls: Path) -> None:
    made("image-index", IMAGE="ghcr.io/owner/tailrace")
    tag = f"ghcr.io/owner/tailrace:{__version__}"
    create = "docker buildx imagetools create --tag"
    assert calls.read_text().splitlines() == [
        f"{create} {tag}{target} {tag}{target}-amd64 {tag}{target}-arm64"
        for target in ("", "-destinations", "-lake", "-pipeline")
    ]


@pytest.mark.parametrize("tag", ["v9.9.9", f"v{__version__}x"])
def test_a_tag_of_another_version_is_refused_before_anything_is_built(tag: str) -> None:
    done = subprocess.run(
        [ROOT / ".ci/release", "/usr/bin"],
        env=os.environ | {"TAG": tag},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"release: the tag is {tag}, and service/tailrace/version.py has {__version__}\n"
    )
