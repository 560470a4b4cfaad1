"""``tailrace why``: what it refuses, and what a terminal shows."""

import io
import sys
import threading

import pytest

from tailrace.cli import main
from tailrace.cli.waiting_bar import waiting_bar
from tailrace.cli.why_text import text_of
from tailrace.event.key import read_key
from tailrace.why.answer import ChangeOutcome, DocumentOutcome, Outcome, State
from tests.guards import HANGS_SECONDS
from tests.unit.cli.conftest import Configure
from tests.unit.cli.test_snapshot_text import Terminal


@pytest.mark.parametrize(
    ("scope", "key", "message"),
    [
        ("ordres", "1", "Did you mean 'orders'?"),
        ("orders", "A-17", 'write text with quotes ("A-17")'),
        ("orders", "65a00000000000000000000F", '{"$oid": "65a00000000000000000000f"}'),
        ("orders", '{"$oid": 1}', "is not Extended JSON"),
        ("orders", str(2**70), "holds a value that BSON cannot store"),
    ],
)
def test_a_wrong_scope_or_key_is_refused_with_what_to_write(
    configure: Configure, capsys: pytest.CaptureFixture[str], scope: str, key: str, message: str
) -> None:
    assert main(["why", "--scope", scope, "--key", key]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown


def test_equal_numbers_are_one_key() -> None:
    keys = ["7", '{"$numberLong": "7"}', "7.0", '{"_id": 7}', '{"$numberDecimal": "7"}']
    assert len({read_key(key).element for key in keys}) == 1


ANSWER = DocumentOutcome(
    "orders", "1", None, True, None, None, None, None, None, "It is filtered.",
    [ChangeOutcome("insert", "shop.or\x1b[2Jders", None, "5f3a", ["oplog"], {
        "log": Outcome(State.FILTERED, "its route takes only delete"),
    })],
)  # fmt: skip


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_is_shown_how_long_a_search_takes(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    drawn = {"searching": threading.Event(), "half of it": threading.Event()}

    class Screen(Terminal):
        def isatty(self) -> bool:
            return is_terminal

        def write(self, text: str) -> int:
            for what, event in drawn.items():
                if what in text:
                    event.set()
            return super().write(text)

    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    with waiting_bar("searching", 10, after_seconds=0) as progress:
        for share, what in ((None, "searching"), (0.5, "half of it")):
            progress.share, progress.what = share, what
            assert drawn[what].wait(HANGS_SECONDS if is_terminal else 0) is is_terminal
        progress.print("a line", screen)
    shown = screen.getvalue()
    assert ("searching  [........................]" in shown) is is_terminal
    assert ("half of it  [############............]" in shown) is is_terminal
    assert shown.endswith("\r\x1b[K" if is_terminal else "a line\n")
    assert ("\r\x1b[Ka line\n" in shown) is is_terminal


@pytest.mark.parametrize(("no_colour", "coloured"), [("", True), ("1", False)])
def test_colours_are_only_for_terminals_that_want_them(
    monkeypatch: pytest.MonkeyPatch, no_colour: str, coloured: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setenv("TERM", "xterm")
    shown = text_of(ANSWER.to_document(), Terminal())
    assert ("\x1b[33mfiltered\x1b[0m" in shown) is coloured
    assert "\x1b" not in text_of(ANSWER.to_document(), io.StringIO())
