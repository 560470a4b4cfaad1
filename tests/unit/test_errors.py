"""What errors say of themselves, and what handlers may put into those that are for them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from service.errors import TailraceError, TemporaryError, describe


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError("no key\nin the  environment"), "OSError: no key in the environment"),
        (ValueError(), "ValueError"),
        (TailraceError("all is said"), "all is said"),
        (TailraceError(), "TailraceError"),
        (Unspeakable(), "Unspeakable"),
        (SystemExit(3), "SystemExit: 3"),
    ],
)
def test_an_error_is_one_line_whatever_it_is(error: BaseException, line: str) -> None:
    assert describe(error) == line


@pytest.mark.parametrize("delay", [None, 0, 0.5, 86400])
def test_a_temporary_error_carries_its_delay(delay: float | None) -> None:
    error = TemporaryError("busy", delay=delay)
    assert (str(error), error.delay) == ("busy", delay)


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), "5", timedelta(seconds=5)])
def test_a_delay_that_is_no_number_of_seconds_is_refused(delay: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        TemporaryError("busy", delay=delay)
