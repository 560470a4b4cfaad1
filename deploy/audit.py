"""Asks for known vulnerabilities of the locked dependencies, and never passes without an answer.

    python deploy/audit.py LOCK…

pip-audit looks; this says whether it could. A mirror that answers without vulnerabilities looks
like a clean bill of health, so a release that is known to be vulnerable is asked for first.

Exit codes: 0 nothing is known, 1 something is, 2 it could not look.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

CLEAN, FOUND, BLIND = 0, 1, 2

# CVE-2020-14343, arbitrary code execution; no database of vulnerabilities is without it.
CANARY = "pyyaml==5.3.1"


class CouldNotLookError(Exception):
    """No answer, or one that is worth nothing."""


def main(locks: list[str]) -> int:
    """Prints what is known of each lock file; the worst exit code."""
    try:
        if not locks:
            raise CouldNotLookError("no lock file is given")
        with tempfile.TemporaryDirectory() as directory:
            canary = Path(directory) / "canary.txt"
            canary.write_text(f"{CANARY}\n")
            if not _vulnerable(_audit(canary, "--no-deps")):
                raise CouldNotLookError(f"the source knows nothing of {CANARY}, so of nothing else")
        found = [_report(Path(lock)) for lock in locks]
    except (CouldNotLookError, OSError, ValueError) as error:
        print(f"audit: COULD NOT LOOK, so this is no pass: {error}", file=sys.stderr)
        return BLIND
    return FOUND if any(found) else CLEAN


def _report(lock: Path) -> bool:
    """Whether something is known of the packages that the lock holds for this platform."""
    pins = _pins(lock)
    found = _audit(lock, "--require-hashes")
    if not pins or len(found) < len(pins):
        raise CouldNotLookError(f"{lock}: only {len(found)} of {len(pins)} packages")
    vulnerable = _vulnerable(found)
    for package in vulnerable:
        for one in package["vulns"]:
            fixed = ", ".join(one["fix_versions"]) or "no release yet"
            print(f"{package['name']} {package['version']}: {one['id']}, mended in {fixed}")
    known = f"{len(vulnerable)} with known vulnerabilities"
    print(f"audit: {lock}: {len(found)} packages looked at, {known}")
    return bool(vulnerable)


def _pins(lock: Path) -> set[str]:
    pins = set()
    for line in lock.read_text().splitlines():
        text = line.partition(" #")[0].partition(" --hash")[0].rstrip("\\ ")
        if not text or text[0] in " #-":
            continue
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            raise CouldNotLookError(f"{lock}: {text}: {error}") from None
        if requirement.marker is None or requirement.marker.evaluate():
            pins.add(requirement.name)
    return pins


def _audit(requirements: Path, *options: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off"]
    done = subprocess.run(  # noqa: S603 - our own words, and the path that we were given
        [*command, "--disable-pip", *options, "--requirement", str(requirements)],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise CouldNotLookError(f"pip-audit: {last[0]}") from None
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if skipped:
        raise CouldNotLookError(f"pip-audit skipped {', '.join(skipped)}")
    return packages


def _vulnerable(packages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [package for package in packages if package["vulns"]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
