"""The arithmetic of a soak's report, and its account of changes."""

import json
from pathlib import Path

import pytest

from tests.soak.changes import ChangesAccount, FollowedFile, SoakChange
from tests.soak.curves import CurvePoint, SoakCurve, read_curves, slope, spread
from tests.soak.plan import SoakPlan
from tests.soak.report import problems, text
from tests.soak.schedule import PlannedAction, in_order

GOOD = {
    "seconds": 7200.0,
    "written": 1_440_000,
    "failures": [],
    "accounts": [{"name": "file", "events": 5, "repeats": 0, "lost": 0}],
    "unequal": {"copy": []},
    "compared": {"equal": 5},
    "dead_letters": 0,
    "verifications": {"0": 1},
    "ended": {"done": 1},
    "reasons": {},
    "happenings": [{"what": "restart"}],
    "complaints": [],
}
TWO_HOURS = SoakPlan(2, 200)


def points(*values: float, pid: int = 1, begin: float = 0) -> list[CurvePoint]:
    """One a minute."""
    return [CurvePoint(begin + 60 * at, pid, value) for at, value in enumerate(values)]


def memory(*values: float) -> list[SoakCurve]:
    return [SoakCurve("service", "RSS MB", points(*values))]


def test_a_slope_is_the_growth_in_an_hour_within_the_life_of_a_process() -> None:
    first, second = points(100, 101, 102), points(50, 51, 52, pid=2, begin=600)
    assert slope([*first, *second]) == pytest.approx(60)
    assert slope(points(7)) is None


def test_a_spread_compares_medians_so_that_one_peak_does_not_count() -> None:
    assert spread(points(100, 100, 900, 110, 110, 110), 180) == pytest.approx(0.1)
    assert spread(points(0, 1), 60) is None
    assert spread([], 60) is None


def test_a_spread_compares_what_one_process_needed() -> None:
    first, second = points(100, 104, 102), points(50, 51, 53, pid=2, begin=600)
    assert spread([*first, *second], 60) == pytest.approx(0.06)


def test_a_curve_has_settled_once_the_run_and_the_process_are_warm() -> None:
    curve = SoakCurve(
        "service", "threads", [*points(*range(5)), *points(*range(5), pid=2, begin=300)]
    )
    assert [point.seconds for point in curve.settled(180, 120)] == [180, 240, 420, 480, 540]


def test_a_sample_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "samples.csv"
    path.write_text("1.0,service,7,RSS MB,100\n2.0,service,7,RSS")
    assert read_curves(path) == [SoakCurve("service", "RSS MB", [CurvePoint(1.0, 7, 100.0)])]


def test_times_are_scaled_to_the_length_of_the_run() -> None:
    day, two, short = SoakPlan(24, 2000), TWO_HOURS, SoakPlan(0.05, 100)
    assert [plan.restart_every for plan in (day, two, short)] == [1800, 900, 22.5]
    assert [plan.snapshot_every for plan in (day, two, short)] == [3600, 1800, 45]
    assert [plan.settling for plan in (day, two, short)] == [600, 300, 7.5]
    assert [plan.warm for plan in (day, two, short)] == [1200, 1200, 30]


def test_actions_come_by_their_times_until_the_end() -> None:
    actions = [PlannedAction("a", 3, 3, iter(())), PlannedAction("b", 1, 4, iter(()))]
    happened = [(seconds, action.what) for seconds, action in in_order(actions, 9)]
    assert happened == [(1, "b"), (3, "a"), (5, "b"), (6, "a")]


def test_a_good_run_tells_nothing() -> None:
    curves = memory(*[500] * 20, *[100] * 100)
    assert problems(TWO_HOURS, curves, GOOD) == []
    assert "Equal, nothing lost, not grown." in text(TWO_HOURS, curves, GOOD)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"failures": ["the service ended with 1"]}, "ended with 1"),
        ({"accounts": [{**GOOD["accounts"][0], "lost": 2}]}, "2 events tell of lost changes"),
        ({"unequal": {"copy": ["orders/d1"]}}, "1 documents are not those of the source"),
        ({"compared": {"missing": 1}}, "'missing': 1"),
        ({"dead_letters": 1}, "1 dead letters"),
    ],
)
def test_what_is_wrong_is_told(change: dict, told: str) -> None:
    (problem,) = problems(TWO_HOURS, memory(*[100] * 120), {**GOOD, **change})
    assert told in problem


def test_growth_is_told_of_a_run_of_an_hour_or_longer() -> None:
    grown = memory(*range(100, 220))
    (problem,) = problems(TWO_HOURS, grown, GOOD)
    assert "RSS moved by" in problem
    assert problems(TWO_HOURS, grown, {**GOOD, "seconds": 3000.0}) == []
    assert "was not measured" in problems(TWO_HOURS, [], GOOD)[0]


def test_an_account_tells_a_change_that_is_missing_and_no_repeat() -> None:
    account, key = ChangesAccount("file"), ("orders", "d1")
    row, end = SoakChange("read", key, 4), SoakChange("snapshotEnd")
    changes = [SoakChange("update", key, n) for n in (5, 6, 5, 6)]
    deleted = SoakChange("delete", key)
    account.take([row, end, *changes, SoakChange("read", key, 6), deleted, changes[-1], deleted])
    assert (account.lost, account.repeats, account.documents) == (0, 2, {})
    account.take(
        [SoakChange("insert", ("orders", "d2"), 0), SoakChange("update", ("orders", "d2"), 2)]
    )
    account.take([SoakChange("read", ("orders", "d3"), 1), SoakChange("delete", ("orders", "d4"))])
    assert account.lost == 3
    assert account.documents == {("orders", "d2"): 2, ("orders", "d3"): 1}


def test_a_followed_file_is_read_over_its_rotation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.soak.changes._ROTATE_BYTES", 0)
    path = tmp_path / "events.jsonl"

    def line(n: int) -> str:
        event = {
            "operationType": "update",
            "ns": {"db": "shop", "coll": "orders"},
            "documentKey": {"_id": "d1"},
            "updateDescription": {"updatedFields": {"n": n}},
            "fullDocument": {"n": 99},
        }
        return json.dumps(event) + "\n"

    followed = FollowedFile(path)
    with path.open("w") as handler:
        handler.write(line(1) + line(2)[:20])
        handler.flush()
        assert [change.n for change in followed.new()] == [1]
        assert not path.exists()
        handler.write(line(2)[20:] + line(3))  # not yet aware of the rotation
    assert [change.n for change in followed.new()] == [2, 3]
    path.write_text(line(4))
    monkeypatch.undo()
    assert [change.n for change in followed.new()] == []
    assert [change.n for change in followed.new()] == [4]
    assert not list(tmp_path.glob("*.1"))
