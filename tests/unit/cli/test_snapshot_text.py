"""What a terminal and a file are shown of a snapshot."""

import io
from dataclasses import replace
from typing import Any

import pytest

from tailrace.cli.snapshot_text import SnapshotDisplay, lines
from tailrace.engine.plan.row_source import ObservedSnapshot
from tailrace.engine.status.snapshot_status import described, documents_read
from tailrace.model import SnapshotProgress
from tailrace.model.snapshot import RangeProgress, RangeState, SnapshotMode, SnapshotState

ORDERS = RangeProgress("0a", "shop", "orders", 4000, scanned=1000, documents=1000)
USERS = RangeProgress("0b", "shop", "us\x1b[2Jers", 10, scanned=10, documents=10)
PROGRESS = SnapshotProgress(
    "5f3a",
    SnapshotMode.INITIAL,
    SnapshotState.READING,
    ranges={
        "0a/0": replace(ORDERS, estimate=2000),
        "0a/1": replace(ORDERS, estimate=2000, scanned=2000, state=RangeState.DONE),
        "0b": replace(USERS, state=RangeState.DROPPED, note="it was dropped"),
    },
)


def shown(progress: SnapshotProgress = PROGRESS, obstacle: str = "", **seen: Any) -> dict[str, Any]:
    found = described(ObservedSnapshot(progress, **seen), obstacle)
    assert found is not None
    return found


def test_progress_has_a_line_with_a_bar_for_each_collection() -> None:
    snapshot = shown(rates={"0a": 12.3, "0b": 7.0})
    assert lines(snapshot) == [
        "snapshot 5f3a (initial) is reading; 3,010 of about 4,010  12/s, 1m 21s left",
        "  shop.orders  [##################......]  75%  3,000 of about 4,000  12/s, 1m 21s left"
        "  reading",
        "  shop.us\\u001b[2Jers  [########################] 100%  10 documents"
        "  dropped: it was dropped",
    ]
    assert lines(None) == ["the scope has had no snapshot"]


def test_progress_gives_the_reason_why_a_snapshot_stands_still() -> None:
    rates = {"0a": 5.0}
    stuck = shown(rates=rates, trouble="no primary")
    assert lines(stuck)[0].startswith("snapshot 5f3a (initial) is reading: no primary; ")
    assert shown(obstacle="the stream is 20 s behind", trouble="x")["reason"].startswith("the str")
    paused = shown(replace(PROGRESS, paused=True), "the scope is halted", rates=rates)
    assert (paused["state"], "resume" in paused["reason"]) == ("paused", True)
    assert (paused["documents_per_second"], paused["seconds_left"]) == (0, None)
    over = replace(PROGRESS, paused=True, state=SnapshotState.CANCELLED)
    ended = shown(over, "the scope is halted", rates=rates)
    assert (ended["state"], ended["reason"], ended["remaining"]) == ("cancelled", None, 0)
    assert documents_read(ObservedSnapshot(over))["shop.orders"] == (2000, 0)


def test_long_progress_is_cut_and_begins_with_unfinished_collections() -> None:
    ranges = {f"{n}": replace(ORDERS, uuid=f"{n}", collection=f"c{n}") for n in range(30)}
    ranges["7"] = replace(ranges["7"], state=RangeState.DONE, documents=3, estimate=1000)
    progress = replace(PROGRESS, ranges=ranges, filter="{}")
    found = lines(shown(progress), most=10)
    assert (len(found), found[-1]) == (10, "  and 22 more")
    assert "c7 " not in "".join(found)
    assert "  1,000 documents, 3 match  done" in lines(shown(progress))[8]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_each_report_in_place_of_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "3")
    out = Terminal()
    display = SnapshotDisplay(out)
    display.show(shown(), last=False)
    first = out.getvalue()
    assert [len(line) <= 40 for line in first.splitlines()] == [True] * 3
    display.show(shown(), last=True)
    assert out.getvalue()[len(first) :].startswith("\x1b[3F\x1b[Jsnapshot 5f3a")


def test_a_file_gets_few_reports() -> None:
    out = io.StringIO()
    display = SnapshotDisplay(out)
    for _ in range(20):
        display.show(shown(), last=False)
    assert len(out.getvalue().splitlines()) == 3
    display.show(shown(), last=True)
    assert len(out.getvalue().splitlines()) == 6
    assert "\x1b" not in out.getvalue()
