"""GitHub's workflows fit their schema, call targets of the Makefile, and may do little."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checkout import ROOT
from tests.deploy.manifests import tool

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()
RELEASE = (ROOT / ".github/workflows/release.yml").read_text()
MAKE = re.compile("make ([a-z-]+)")

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
        ("vendor.github-issue-forms", ROOT / ".github/ISSUE_TEMPLATE/problem.yml"),
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
    """Of the job, or of one before it. The draft is published by a person."""
    release = jobs(ROOT / ".github/workflows/release.yml")

    def approved(name: str) -> bool:
        needed = release[name].get("needs")
        waits = release[name].get("environment") == "release"
        return waits or (needed is not None and approved(needed))

    assert [name for name in release if not approved(name)] == ["distributions"]


def test_what_the_release_signs_and_uploads_is_what_make_release_writes() -> None:
    written = (ROOT / ".ci/release").read_text()
    for name in re.findall(r"dist/([\w.-]+)$", RELEASE, re.MULTILINE):
        assert f"dist/{name}" in written, name
