"""Error texts, and what handlers may put into their own errors."""

from datetime import timedelta
from typing import Any

import pytest

from tailrace.errors import LONGEST_ERROR, TailraceError, TemporaryError, describe


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError("no key\nin the  environment"), "OSError: no key in the environment"),
        (OSError("a \x1b[31mtoken=\x1b[0mred\x1b[2K"), "OSError: a token=***"),
        (ValueError(), "ValueError"),
        (TailraceError("all is said"), "all is said"),
        (TailraceError(), "TailraceError"),
        (Unspeakable(), "Unspeakable"),
        (SystemExit(3), "SystemExit: 3"),
    ],
)
def test_an_error_is_one_line_whatever_it_is(error: BaseException, line: str) -> None:
    assert describe(error) == line


@pytest.mark.parametrize("length", [LONGEST_ERROR + 1, 3 * LONGEST_ERROR, 20_000_000])
def test_a_long_error_keeps_both_ends_and_says_how_much_is_left_out(length: int) -> None:
    line = describe(ValueError("begin" + "x" * (length - 8) + "end"))
    assert line.startswith("ValueError: beginxxx")
    assert line.endswith("xxxend")
    assert f" … ({length - LONGEST_ERROR} characters left out) … " in line
    assert len(line) < LONGEST_ERROR + 60


def test_no_part_of_a_password_shows_where_an_error_is_cut() -> None:
    url = "mongodb://app:" + "secret" * 200 + "@db/"
    for before in range(0, 3 * LONGEST_ERROR, 50):
        assert "secret" not in describe(OSError(f"{'x ' * before}{url}{' x' * LONGEST_ERROR}"))


def test_an_error_of_ours_has_room_for_one_that_it_quotes() -> None:
    quoted = describe(ValueError("x" * 2 * LONGEST_ERROR))
    line = f"handler 'audit' failed: {quoted}, after 5 attempts"
    assert describe(TailraceError(line)) == line


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), "5", timedelta(seconds=5)])
def test_a_delay_that_is_no_number_of_seconds_is_refused(delay: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        TemporaryError("busy", delay=delay)
