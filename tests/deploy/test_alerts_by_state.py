"""An alert fires for a scope stuck in any state, and exactly one if the server is gone.

Each case is a scope that stays in one state for an hour and reads nothing. Every new state must be
added here.
"""

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tailrace.engine import WatcherState
from tests.deploy import files
from tests.packages import require

LABELS = 'job="tailrace",instance="tailrace:9464"'

READS_NOTHING = {"TailraceNoRoundTrip", "TailraceLagGrowing"}
HOLDS_EVENTS = {"TailraceCheckpointStuck"}

FIRING: dict[WatcherState, set[str]] = {
    WatcherState.STARTING: READS_NOTHING,
    WatcherState.CATCHING_UP: READS_NOTHING,  # nor an answer to "are you executing it?"
    WatcherState.STREAMING: READS_NOTHING,
    WatcherState.CAUGHT_UP: READS_NOTHING,
    WatcherState.BACKING_OFF: READS_NOTHING,
    WatcherState.DRAINING: READS_NOTHING | HOLDS_EVENTS,
    WatcherState.WAITING: {"TailraceLagGrowing"} | HOLDS_EVENTS,
    WatcherState.PAUSED: {"TailraceLagGrowing"},  # somebody may have forgotten it
    WatcherState.HALTED: {"TailraceScopeHalted"},
    WatcherState.STOPPED: set(),  # as configured
    WatcherState.STANDBY: {"TailraceScopeUnowned"},  # and no process follows the scope
}

HOLDING = {WatcherState.DRAINING, WatcherState.WAITING}
"""The states in which handlers have events."""


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    more = "".join(f',{label}="{value}"' for label, value in labels.items())
    return {"series": f"{name}{{{LABELS}{more}}}", "values": values}


def stuck(state: WatcherState, *, up: bool) -> list[dict[str, str]]:
    """The series of an hour in a state, as the service exports them then."""
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
        stages = ("read", "handled", "committed")
        found += [
            series("tailrace_lag_seconds", "0+60x60", scope="orders", stage=stage)
            for stage in (stages if state is not WatcherState.STANDBY else stages[-1:])
        ]
    if state is WatcherState.STANDBY:
        found.append(series("tailrace_lease_held", "0x60", scope="orders"))
    return found


def case(inputs: list[dict[str, str]], wanted: set[str]) -> dict[str, Any]:
    """A case for promtool: exactly these alerts fire after an hour of these series."""
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(wanted)]
    firing = 'count by (alertname) (ALERTS{alertstate="firing"})'
    test = {"expr": firing, "eval_time": "60m", "exp_samples": samples}
    return {"interval": "1m", "input_series": inputs, "promql_expr_test": [test]}


def test_a_scope_that_makes_no_progress_has_its_alert_and_an_outage_has_one(
    tmp_path: Path,
) -> None:
    tests = [case(stuck(state, up=True), FIRING[state]) for state in WatcherState]
    for state in WatcherState:
        by_itself = FIRING[state] & {"TailraceScopeHalted"}  # stays after the server's return
        tests.append(case(stuck(state, up=False), {"TailraceServerDown"} | by_itself))
    path = tmp_path / "case.yml"
    groups = ["tailrace", "tailrace-alive", "tailrace-behind", "tailrace-failing"]
    document = {
        "rule_files": [str(files.PROMETHEUS / name) for name in ("rules.yml", "alerts.yml")],
        "evaluation_interval": "1m",
        "group_eval_order": groups,
        "tests": tests,
    }
    path.write_text(yaml.safe_dump(document))
    promtool = require("promtool", package="prometheus")
    done = subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
