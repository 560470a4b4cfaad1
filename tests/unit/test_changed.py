"""Which tests ``make quick`` runs."""

from pathlib import Path

import pytest

from tests.changed import unit_tests

TESTS = ["test_app.py", "engine/test_run.py", "engine/read/test_reader.py", "cli/test_why.py"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for test in TESTS:
        path = tmp_path / "tests/unit" / test
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("service/tailrace/app.py", ["tests/unit/test_app.py"]),
        ("service/tailrace/engine/read/reader.py", ["tests/unit/engine/read/test_reader.py"]),
        ("service/tailrace/engine/read/buffer.py", ["tests/unit/engine/read"]),
        ("service/tailrace/engine/plan/router.py", ["tests/unit/engine"]),
        ("service/tailrace/cli/__init__.py", ["tests/unit/cli"]),
        ("service/tailrace/version.py", []),
        ("service/tailrace/demo/display.py", []),
        ("tests/unit/engine/test_run.py", ["tests/unit/engine/test_run.py"]),
        ("tests/unit/engine/changes.py", ["tests/unit/engine"]),
        ("tests/unit/engine/test_removed.py", []),
        ("tests/integration/test_ddl.py", []),
        ("README.md", []),
    ],
)
def test_the_tests_of_a_file_are_its_mirror_or_those_of_its_package(
    checkout: Path, changed: str, expected: list[str]
) -> None:
    assert unit_tests([changed], checkout) == expected


def test_no_test_runs_twice(checkout: Path) -> None:
    engine = "service/tailrace/engine"
    changed = [f"{engine}/run.py", f"{engine}/read/reader.py", f"{engine}/ports.py"]
    assert unit_tests(changed, checkout) == ["tests/unit/engine"]
