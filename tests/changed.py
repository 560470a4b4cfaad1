"""The unit tests of what was changed since the branch began: ``python -m tests.changed [BASE]``.

``tests/unit`` mirrors ``service/tailrace``: the tests of ``engine/read/reader.py`` are those of
``tests/unit/engine/read/test_reader.py``, or else of the directory.
"""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
SERVICE, UNIT = PurePosixPath("service/tailrace"), PurePosixPath("tests/unit")
BASES = ("origin/HEAD", "origin/main", "main")


def git(*arguments: str) -> list[str]:
    run = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return run.stdout.splitlines() if run.returncode == 0 else []


def changed_paths(base: str | None) -> Iterator[str]:
    """What differs from the commit at which the branch left ``base``, committed or not."""
    bases = [base] if base else BASES
    begins = next((commit for name in bases for commit in git("merge-base", name, "HEAD")), "HEAD")
    yield from git("diff", "--name-only", begins)
    yield from git("ls-files", "--others", "--exclude-standard")


def unit_tests(paths: Iterable[str], root: Path = ROOT) -> list[str]:
    """Files and directories of unit tests, none of which is in another."""
    tests = {test for path in paths if (test := _tests_of(PurePosixPath(path), root)) is not None}
    return sorted(str(test) for test in tests if not tests & set(test.parents))


def _tests_of(path: PurePosixPath, root: Path) -> PurePosixPath | None:
    if path.suffix != ".py":
        return None
    if path.is_relative_to(UNIT):
        is_test = path.name.startswith("test_")
        return (path if (root / path).is_file() else None) if is_test else path.parent
    if not path.is_relative_to(SERVICE):
        return None
    mirror = UNIT / path.relative_to(SERVICE)
    its_file = mirror.with_name(f"test_{mirror.name}")
    if (root / its_file).is_file():
        return its_file
    directory = next(parent for parent in mirror.parents if (root / parent).is_dir())
    return None if directory == UNIT else directory


if __name__ == "__main__":
    tests = unit_tests(changed_paths(*sys.argv[1:] or [None]))
    print(*tests)
    if not tests:
        print("There is no unit test of what was changed", file=sys.stderr)
