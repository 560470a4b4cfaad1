"""``tailrace status``: the worst first, with the command that helps."""

import json
import sys
from typing import Any

import pytest

from tailrace.cli import main
from tailrace.cli.status_text import report_of, text_of
from tests.unit.cli.conftest import Configure

NOW = "2026-11-26T12:00:00+00:00"


def handler(**fields: Any) -> dict[str, Any]:
    calls = {"down_since": None, "down_cause": None, "call_since": None, "call": None}
    course = {"state": "attached", "reason": "", "since": NOW}
    course |= {"lag_seconds": {"handled": 1.0}, "in_flight": {"events": 0}}
    return {"ok": 7, "waiting": 0, "verification": None, **course, **calls, **fields}


def scope(state: str = "caught_up", reason: str = "", **fields: Any) -> dict[str, Any]:
    return {
        "state": state,
        "reason": reason,
        "since": NOW,
        "lag_seconds": {"read": 0.0, "handled": 2.0, "committed": 65.0},
        "in_flight": {"events": 3},
        "handlers": {"table": handler()},
        "snapshot": None,
        "lease": None,
        "reported": None,
        **fields,
    }


def status(*degraded: str, ready: bool = True, **scopes: Any) -> dict[str, Any]:
    return {
        "ready": ready,
        "stopping": False,
        "degraded": list(degraded),
        "server": {"unreachable_since": None},
        "scopes": scopes,
    }


def test_all_is_well() -> None:
    report = report_of(status(orders=scope()))
    assert report["well"] is True
    assert text_of(report, sys.stdout) == (
        "SCOPE   HANDLER  STATE      LAG  IN FLIGHT  DEAD LETTERS\n"
        "orders           caught up  2s   3          0\n"
        "        table    well                       0\n"
    )


@pytest.mark.parametrize(
    ("shown", "line"),
    [
        ({}, ""),
        ({"due": NOW}, "not verified yet"),
        (
            {"state": "done", "proven": {"through": NOW, "differences": 3}},
            f"verified to {NOW}, 3 differ",
        ),
        ({"state": "running", "reason": "behind"}, "comparing, 5 of about 9; behind"),
        (
            {"state": "failed", "reason": "too old"},
            "not verified yet; the last verification is failed; too old",
        ),
    ],
)
def test_what_is_proven_of_a_handler_is_one_line(shown: dict[str, Any], line: str) -> None:
    of = {"state": None, "reason": "", "proven": None, "due": None, "compared": 5, "estimate": 9}
    handlers = {"table": handler(verification={**of, **shown})}
    report = report_of(status(orders=scope(handlers=handlers)))
    assert report["well"] is True
    text = text_of(report, sys.stdout)
    assert [each for each in text.splitlines() if each.startswith("orders table: ")] == (
        [f"orders table: {line}"] if line else []
    )


ELSEWHERE = {"owner": "two", "epoch": 3, "held": False}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (scope("halted", "history is lost"), ["tailrace scopes restart a"]),
        (
            scope("halted", "reset it with 'tailrace checkpoints reset a'"),
            ["tailrace checkpoints reset a", "tailrace scopes restart a"],
        ),
        (scope("paused", "paused by anna"), ["tailrace scopes resume a"]),
        (
            scope("paused", "paused by anna: 'tailrace scopes resume a --handler log' continues"),
            ["tailrace scopes resume a --handler log"],
        ),
        (scope("backing_off", "no answer"), []),
        (scope(snapshot={"state": "paused"}), ["tailrace snapshot resume a"]),
        (scope(snapshot={"state": "reading"}), []),
        (scope("standby", "two follows it", lease=ELSEWHERE), []),
        (
            scope("standby", "'tailrace scopes release a' frees it", lease={"owner": ""}),
            ["tailrace scopes release a"],
        ),
    ],
)
def test_the_next_command(found: dict[str, Any], expected: list[str]) -> None:
    (one,) = report_of(status(a=found))["scopes"]
    assert one["next"] == expected


def test_the_worst_comes_first_with_its_reason_and_the_next_command() -> None:
    letters = (
        "scope held: 2 dead letters wait for handler 'table': see 'tailrace dead-letters list'"
    )
    waiting = "waits for the destination of handler 'table' since …: refused"
    report = report_of(
        status(
            letters,
            f"scope out: {waiting}",
            "replicas: the store is slow",
            ready=False,
            well=scope(),
            held=scope(
                handlers={"table": handler(waiting=2), "log": handler(waiting=None, call_since=NOW)}
            ),
            elsewhere=scope("standby", "two follows it", lease=ELSEWHERE),
            out=scope(
                "waiting",
                waiting,
                handlers={"table": handler(down_since=NOW, down_cause="refused")},
            ),
            **{"odd name": scope("halted", "line one\nline two", handlers={})},
        )
    )
    assert report["well"] is False
    names = [each["scope"] for each in report["scopes"]]
    assert names == ["odd name", "out", "held", "elsewhere", "well"]
    table, _, attention = text_of(report, sys.stdout).partition("\n\n")
    assert [" ".join(line.split()) for line in table.splitlines()[1:]] == [
        "odd name halted 2s 3 0",
        "out waiting 2s 3 0",
        "table down since 2026-11-26T12:00:00Z 0",
        "held caught up 2s 3 -",
        "table dead letters 2",
        "log in call since 2026-11-26T12:00:00Z -",
        "elsewhere followed, on two - 3 0",
        "table idle 0",
        "well caught up 2s 3 0",
        "table well 0",
    ]
    assert attention == (
        "replicas: the store is slow\n"
        "\nodd name: halted\n  line one line two\n  next: tailrace scopes restart 'odd name'\n"
        f"\nout: waiting\n  {waiting}\n"
        f"\nheld: caught up\n  {letters}\n  next: tailrace dead-letters list\n"
    )


def test_a_handler_on_its_own_is_shown_with_its_state_and_what_helps() -> None:
    behind = {"lag_seconds": {"handled": 3600.0}, "in_flight": {"events": 5}}
    handlers = {
        "table": handler(),
        "index": handler(state="halted", reason="no such table"),
        "copy": handler(state="catching_up", **behind),
        "queue": handler(state="waiting", down_since=NOW, down_cause="refused", **behind),
        "log": handler(state="paused", reason="paused by ann"),
    }
    paused = "'tailrace scopes resume a --handler log' continues"
    note = f"scope a: handler 'log' is paused: {paused}"
    report = report_of(status(note, ready=False, a=scope(handlers=handlers)))
    (one,) = report["scopes"]
    assert one["next"] == [
        "tailrace scopes resume a --handler log",
        "tailrace scopes restart a --handler index",
    ]
    table, _, attention = text_of(report, sys.stdout).partition("\n\n")
    assert [" ".join(line.split()) for line in table.splitlines()[2:]] == [
        "table well 0",
        "index halted since 2026-11-26T12:00:00Z 1s 0 0",
        "copy catching up since 2026-11-26T12:00:00Z 1h 0m 5 0",
        "queue down since 2026-11-26T12:00:00Z 1h 0m 5 0",
        "log paused since 2026-11-26T12:00:00Z 1s 0 0",
    ]
    assert "  handler 'index' is halted: no such table\n" in attention
    whole = scope("paused", handlers={"log": handler(state="paused")})
    (one,) = report_of(status(a=whole))["scopes"]
    assert one["handlers"][0]["state"] == "idle", "as all of its scope"


def test_of_a_scope_that_another_member_follows_its_report_counts() -> None:
    halted = {"by": "two", "state": "halted", "reason": "history is lost", "lag_seconds": 90.0}
    report = report_of(
        status(
            a=scope("paused", "paused by anna"),
            b=scope("standby", "two follows it", lease=ELSEWHERE, reported=halted),
        )
    )
    assert [each["scope"] for each in report["scopes"]] == ["b", "a"]
    text = text_of(report, sys.stdout)
    assert "halted, on two  1m 30s" in text
    assert "\nb: halted, on two\n  history is lost\n" in text


def test_without_a_daemon_it_says_so(
    configure: Configure, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(http={"port": 1})
    assert main(["status"]) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert "Does the daemon of config.yaml run on this machine?" in printed.err
    assert json.dumps(report_of(status())["scopes"]) == "[]"
