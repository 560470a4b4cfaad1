"""`make audit` passes only where somebody has really looked."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

AUDIT = Path(__file__).parents[2] / "deploy" / "audit.py"

FAKE = """\
import json, pathlib, sys
answers = json.loads(pathlib.Path(__file__).with_name("answers.json").read_text())
answer = answers["canary" if "canary" in sys.argv[-1] else "lock"]
if answer is None:
    sys.exit("ERROR:pip_audit: connection refused")
print(json.dumps({"dependencies": answer}))
sys.exit(any(package.get("vulns") for package in answer))
"""


def package(name: str, *vulnerabilities: str) -> dict[str, Any]:
    return {
        "name": name,
        "version": "1.0",
        "vulns": [{"id": one, "fix_versions": ["1.1"]} for one in vulnerabilities],
    }


SEEN = [package("pyyaml", "PYSEC-2021-142")]
CLEAN = [package("anyio"), package("h11")]


def audit(directory: Path, canary: Any, lock: Any, text: str | None = None) -> tuple[int, str]:
    (directory / "pip_audit.py").write_text(FAKE)
    (directory / "answers.json").write_text(json.dumps({"canary": canary, "lock": lock}))
    file = directory / "requirements.lock"
    file.write_text(
        text
        or "anyio==1.0 \\\n    --hash=sha256:00\nh11==1.0 --hash=sha256:00\n"
        "# a comment\nwinloop==1.0 ; sys_platform == 'win32' \\\n    --hash=sha256:00\n"
        "    # via x\n"
    )
    done = subprocess.run(
        [sys.executable, str(AUDIT), str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(directory)},
    )
    return done.returncode, done.stdout


def test_what_is_known_fails_and_is_named(tmp_path: Path) -> None:
    code, text = audit(tmp_path, SEEN, [package("anyio", "CVE-1"), package("h11")])
    assert code == 1
    assert "anyio 1.0: CVE-1, mended in 1.1" in text


@pytest.mark.parametrize(
    ("canary", "lock", "why"),
    [
        (None, CLEAN, "connection refused"),
        ([package("pyyaml")], CLEAN, "knows nothing of pyyaml==5.3.1"),
        ([], CLEAN, "knows nothing of pyyaml==5.3.1"),
        (SEEN, None, "connection refused"),
        (SEEN, CLEAN[:1], "only 1 of 2 packages"),
        (SEEN, [*CLEAN[:1], {"name": "h11", "skip_reason": "not found"}], "skipped h11"),
    ],
)
def test_without_an_answer_it_says_so_and_does_not_pass(
    tmp_path: Path, canary: Any, lock: Any, why: str
) -> None:
    code, text = audit(tmp_path, canary, lock)
    assert code == 2
    assert "COULD NOT LOOK" in text
    assert why in text


def test_a_lock_that_is_empty_or_missing_is_no_pass(tmp_path: Path) -> None:
    assert audit(tmp_path, SEEN, [], "# nothing\n")[0] == 2
    assert audit(tmp_path, SEEN, CLEAN, "what is this?\n")[0] == 2
    done = subprocess.run([sys.executable, str(AUDIT)], check=False, capture_output=True, text=True)
    assert (done.returncode, "COULD NOT LOOK" in done.stderr) == (2, True)
