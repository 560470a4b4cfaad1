"""From bytes to data: files that are not configurations at all."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from tailrace.config.document import read
from tailrace.config.messages import path_of
from tailrace.errors import ConfigurationError
from tests.configuration import load
from tests.unit.config.files import MINIMAL


def refused(path: Path) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        load(path, {})
    error = caught.value
    assert error.__cause__ is None
    assert error.source == str(path)
    return error


def test_a_file_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + MINIMAL.encode())  # with the BOM that Windows writes
    assert load(file, {}).scopes[0].name == "orders"
    assert load(str(file)).scopes[0].name == "orders"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"- a\n- b\n", "must be a mapping of sections"),
        (b"name: caf\xe9\n", "is not UTF-8 (byte 9)"),
        (b"a: 1\n\tb: 2\n", "not tabs"),
        (b"a: {\n", "line 2, column 1: not YAML"),
        (b"a: b: c\n", "line 1, column 5: not YAML"),
        (b"a: {b: ${X}}\n", "in quotes inside { } or [ ]"),
        (b"a: 1\n---\nb: 2\n", "single document"),
        (b"a: *nowhere\n", "undefined alias"),
        (b'a: "\\UFFFFFFFF"\n', "not YAML"),
        (b"[" * 500, "nested too deeply"),
        (b"a:\n  <<: 1\n", "line 2, column 7: not YAML: while constructing a mapping expected"),
    ],
)
def test_what_is_no_yaml_is_one_problem(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(content)
    (problem,) = refused(file).problems
    assert problem.path == ""
    assert message.replace("not tabs", "not with tabs") in problem.message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.yaml", "no such file"),
        ("", "cannot be read: Is a directory"),
        ("a\0b", "cannot be read: embedded null byte"),
    ],
)
def test_a_file_that_cannot_be_read(name: str, message: str, tmp_path: Path) -> None:
    (problem,) = refused(tmp_path / name).problems
    assert str(problem) == message


@pytest.mark.parametrize("endless", [False, True])
def test_a_file_that_is_far_too_large_is_not_even_read(endless: bool, tmp_path: Path) -> None:
    """A small container would be killed for the memory that it takes."""
    file = tmp_path / "config.yaml"
    with file.open("wb") as sparse:
        sparse.truncate(2**40)
    (problem,) = refused(Path("/dev/zero") if endless else file).problems
    assert str(problem) == "is larger than 1048576 bytes: is it the right file?"


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", "a", "is given again in line 3"),
        ("a: &a [*a]\n", "a", "or an alias inside its own anchor"),
        ("a: !!python/object:os.system {}\n", "a", "the tag !!python/object:os.system"),
        ("a: !!int x\n", "a", "cannot be read as int (invalid literal"),
        ("a:\n  true: x\n", "a.true", "a key must be text"),
        ("a:\n  ? [b]\n  : x\n", "a.?", "a key must be text"),
        ("a: 2024-13-01\n", "a", "cannot be read as timestamp (month must be in 1..12); put"),
        ("a: 99999999999999999999\n", "a", "does not fit into 64 bits"),
    ],
)
def test_problems_of_the_data_have_their_path(text: str, path: str, expected: str) -> None:
    ((location, message),) = read(text, {}).findings
    assert path_of(location) == path
    assert expected in message


@pytest.mark.parametrize("depth", [99, 200])
def test_the_depth_is_bounded(depth: int) -> None:
    problems = read(f"a: {'[' * depth}{']' * depth}\n", {}).findings
    assert [place for place, _ in problems] == ([("a",)] if depth > 100 else [])


def test_an_alias_bomb_is_refused() -> None:
    levels = "".join(f"l{n + 1}: &l{n + 1} [{', '.join([f'*l{n}'] * 9)}]\n" for n in range(9))
    with pytest.raises(ConfigurationError, match="more than 100000 values"):
        read(f"l0: &l0 [x, x]\n{levels}", {})


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1000", 1000),
        ("0123", 123),
        ("0o17", 15),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".inf", float("inf")),
        ("true", True),
        ("yes", "yes"),
        ("1:30", "1:30"),
        ("~", None),
        ("'1000'", "1000"),
        ("!!str 1000", "1000"),
        ('!!int "1000"', 1000),
        ("2024-05-01", date(2024, 5, 1)),
        ("2024-05-01 10:00:00.25 +00:00", datetime(2024, 5, 1, 10, 0, 0, 250_000, tzinfo=UTC)),
    ],
)
def test_scalars_are_read_as_yaml_1_2_has_them(written: str, value: Any) -> None:
    document = read(f"a: {written}\n", {})
    assert not document.findings
    assert document.data == {"a": value}
    assert type(document.data["a"]) is type(value)


def test_anchors_and_merges() -> None:
    document = read(
        "base: &base {a: 1, b: 2}\nother: &other {b: 3, c: 4}\n"
        "one:\n  <<: *base\n  b: 5\nboth:\n  <<: [*base, *other]\n",
        {},
    )
    assert not document.findings
    assert document.data["one"] == {"a": 1, "b": 5}
    assert document.data["both"] == {"a": 1, "b": 2, "c": 4}
