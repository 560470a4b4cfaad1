"""Whatever state a scope stands still in, an alert says so; and only one where the server is gone.

Each case is a scope that stays in a state for an hour and reads nothing. A state that is new has to
be entered here.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tailrace.engine import WatcherState
from tests.deploy import files
from tests.packages import require

LABELS = 'job="tailrace",instance="tailrace:9464"'

READS_NOTHING = {"TailraceNoRoundTrip", "TailraceLagGrowing"}
HOLDS_EVENTS = {"TailraceCheckpointStuck"}

FIRING: dict[WatcherState, set[str]] = {
    WatcherState.STARTING: READS_NOTHING,
    WatcherState.CATCHING_UP: READS_NOTHING,  # no answer to "are you at work on it?" either
    WatcherState.STREAMING: READS_NOTHING,
    WatcherState.CAUGHT_UP: READS_NOTHING,
    WatcherState.BACKING_OFF: READS_NOTHING,
    WatcherState.DRAINING: READS_NOTHING | HOLDS_EVENTS,
    WatcherState.PAUSED: {"TailraceLagGrowing"} | HOLDS_EVENTS,
    WatcherState.HALTED: {"TailraceScopeHalted"},
    WatcherState.STOPPED: set(),  # as configured
}

HOLDING = {WatcherState.DRAINING, WatcherState.PAUSED}
"""Those in which events are inside handlers."""


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    more = "".join(f',{label}="{value}"' for label, value in labels.items())
    return {"series": f"{name}{{{LABELS}{more}}}", "values": values}


def stuck(state: WatcherState, *, up: bool) -> list[dict[str, str]]:
    """An hour in a state, by what the service exports then."""
    found = [
        series("up", "1x60"),
        series("tailrace_server_up", f"{int(up)}x60"),
        series("tailrace_last_round_trip_timestamp_seconds", "0x60", scope="orders"),
        series("tailrace_checkpoint_age_seconds", "0+60x60", scope="orders"),
        series("tailrace_oplog_window_seconds", "604800x60"),
        series("tailrace_oplog_fill_ratio", "1x60"),
        series(
            "tailrace_in_flight_events",
            "7x60" if state in HOLDING else "0x60",
            scope="orders",
        ),
    ]
    found += [
        series("tailrace_watcher_state", f"{int(each is state)}x60", scope="orders", state=each)
        for each in WatcherState
    ]
    if state is not WatcherState.STOPPED:
        found += [
            series("tailrace_lag_seconds", "0+60x60", scope="orders", stage=stage)
            for stage in ("read", "handled", "committed")
        ]
    return found


def firing(directory: Path, inputs: list[dict[str, str]], wanted: set[str]) -> str:
    """What promtool has against the claim that exactly these alerts fire after an hour."""
    case: dict[str, Any] = {
        "rule_files": [str(files.PROMETHEUS / name) for name in ("rules.yml", "alerts.yml")],
        "evaluation_interval": "1m",
        "group_eval_order": [
            "tailrace",
            "tailrace-alive",
            "tailrace-behind",
            "tailrace-failing",
        ],
        "tests": [
            {
                "interval": "1m",
                "input_series": inputs,
                "promql_expr_test": [
                    {
                        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                        "eval_time": "60m",
                        "exp_samples": [
                            {"labels": f'{{alertname="{name}"}}', "value": 1}
                            for name in sorted(wanted)
                        ],
                    }
                ],
            }
        ],
    }
    path = directory / "case.yml"
    path.write_text(yaml.safe_dump(case))
    promtool = require("promtool", package="prometheus")
    done = subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_every_state_is_entered_here() -> None:
    assert set(WatcherState) == set(FIRING)


@pytest.mark.parametrize("state", WatcherState)
def test_a_scope_that_stands_still_is_told(state: WatcherState, tmp_path: Path) -> None:
    assert firing(tmp_path, stuck(state, up=True), FIRING[state]) == ""


@pytest.mark.parametrize("state", WatcherState)
def test_in_an_outage_the_server_is_told_and_no_scope(state: WatcherState, tmp_path: Path) -> None:
    by_itself = FIRING[state] & {"TailraceScopeHalted"}  # no server's return mends that
    inputs = stuck(state, up=False)
    assert firing(tmp_path, inputs, {"TailraceServerDown"} | by_itself) == ""
