"""What a release calls: the images, the chart, the tag.

`make release` itself runs in a workflow, for it builds and installs for minutes. Of the targets
that need Docker with buildx, Helm or an account, the commands are compared.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.version import __version__
from tests.checkout import ROOT

CHART = ROOT / "deploy/helm/tailrace"
PROGRAM = """\
#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLS"
"""
LOADED = """
import json, sys, helm_python
with helm_python.Chart.load(sys.argv[1]) as chart:
    files = {each["name"]: each["data"] for each in chart.files}
    print(json.dumps([chart.name, chart.version, len(chart.templates), files]))
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where programs that stand in for docker note how they were called."""
    (tmp_path / "docker").write_text(PROGRAM)
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def make(target: str, *options: str, **variables: str) -> str:
    """Makes a target; returns what it prints."""
    words = ["make", "--no-print-directory", *options, target]
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
    make("images", IMAGE="ghcr.io/Owner/tailrace", ARCH="arm64", PUSH="1")
    lines = calls.read_text().splitlines()
    stages = re.findall(r"^FROM base AS (\w+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert {re.findall(r"--target (\w+)", line)[0] for line in lines} == set(stages)
    for line in lines:
        assert line.startswith("docker buildx build --platform linux/arm64 --target ")
        for words in ("--sbom=true", "--provenance=mode=max", "push=true", __version__):
            assert words in line
        assert re.search(rf"--tag ghcr\.io/owner/tailrace:{__version__}[a-z-]*-arm64 ", line), line


def test_the_images_of_both_architectures_get_one_tag(calls: Path) -> None:
    make("image-index", IMAGE="ghcr.io/owner/tailrace")
    tag = f"ghcr.io/owner/tailrace:{__version__}"
    create = "docker buildx imagetools create --tag"
    assert calls.read_text().splitlines() == [
        f"{create} {tag}{target} {tag}{target}-amd64 {tag}{target}-arm64"
        for target in ("", "-destinations", "-lake", "-pipeline")
    ]


def test_manifests_and_pages_name_the_version_that_is_built() -> None:
    """As an image's tag, or a wheel's name: what a release would leave behind is found here."""
    named = re.compile(
        r"(?:\btailrace(?:-spark)?[:-]|newTag: |IMAGE:|^Version )(\d+\.\d+\.\d+)", re.M
    )
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    found = {
        (path.relative_to(ROOT), version)
        for path in [*(ROOT / "deploy/kubernetes").rglob("*.yaml"), *pages]
        for version in named.findall(path.read_text())
    }
    assert len(found) >= 6
    assert {version for _, version in found} == {__version__}, found


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


def test_the_chart_is_pushed_as_an_artifact_and_the_release_stays_a_draft() -> None:
    pushed = make("chart-push", "--dry-run", CHARTS="ghcr.io/owner/charts")
    assert pushed.startswith("helm push dist/tailrace-*.tgz ")
    assert 'gh release create "v0" --draft --verify-tag ' in make("draft", "--dry-run", TAG="v0")


def test_the_chart_s_archive_has_the_same_bytes_twice_and_no_links(tmp_path: Path) -> None:
    """Helm's own code loads it, in a process of its own: it is written in Go."""
    archives = [tmp_path / "one.tgz", tmp_path / "another.tgz"]
    for archive, mask in zip(archives, (0o022, 0o077), strict=True):
        tree = tmp_path / archive.stem
        shutil.copytree(ROOT / "deploy", tree / "deploy", symlinks=True)
        for file in tree.rglob("*"):
            if not file.is_symlink():
                file.chmod((0o777 if file.is_dir() else 0o666) & ~mask)
        subprocess.run(
            [ROOT / ".ci/chart", tree, archive],
            env=os.environ | {"SOURCE_DATE_EPOCH": "1"},
            check=True,
        )
    assert archives[0].read_bytes() == archives[1].read_bytes()
    command = [sys.executable, "-c", LOADED, archives[0]]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True)
    name, version, templates, files = json.loads(loaded.stdout)
    assert (name, version) == ("tailrace", __version__)
    assert templates == len(list((CHART / "templates").rglob("*.*")))
    for path in (CHART / "files").iterdir():
        assert files[f"files/{path.name}"] == path.read_text()
