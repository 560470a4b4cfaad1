"""Why the process ended, in one line short enough for a pod's state."""

import json
from collections.abc import Iterator

import pytest
import structlog

from tailrace import errors
from tailrace.cli import exit_report
from tailrace.observe.logs import configure

KEPT = 2048  # the bytes at the end of the log that Kubernetes shows


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def said(error: Exception, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object]]:
    configure("info", "json")
    code = exit_report.log(error)
    written = capsys.readouterr().err
    assert written.count("\n") == 1
    line: dict[str, object] = json.loads(written)
    return code, line


@pytest.mark.parametrize(
    ("error", "event", "code", "helps"),
    [
        (errors.ConfigurationError(errors.Problem("http.port", "taken")), "refused", 2, False),
        (errors.StartRefused("no server is there yet", may_pass=True), "refused", 1, True),
        (errors.StartRefused("a standalone server"), "refused", 1, False),
        (errors.CheckpointError("the disk\nis full"), "failed", 1, True),
        (errors.CheckpointCorrupt("of another cluster"), "failed", 1, False),
        (errors.CheckpointFenced("another process follows this scope"), "failed", 1, False),
        (errors.SegmentUnreadable("torn"), "failed", 1, False),
        (errors.ConnectionFailed("no primary"), "failed", 1, True),
        (LookupError("nobody foresaw it"), "crashed", 1, True),
    ],
    ids=str,
)
def test_the_last_line_has_the_cause_the_exit_code_and_whether_a_restart_helps(
    error: Exception, event: str, code: int, helps: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    returned, line = said(error, capsys)
    assert returned == line["exit_code"] == code
    assert line["event"] == f"service.{event}"
    assert line["restart_helps"] is helps
    assert " ".join(str(error).split()) in str(line.get("reason", line.get("exception")))


def test_the_last_line_has_every_problem_of_a_configuration(
    capsys: pytest.CaptureFixture[str],
) -> None:
    problems = [errors.Problem(f"key{n}", "is wrong") for n in range(3)]
    _, line = said(errors.ConfigurationError(*problems, source="config.yaml"), capsys)
    assert line["reason"] == (
        "config.yaml: 3 problems: key0: is wrong; key1: is wrong; key2: is wrong"
    )


@pytest.mark.parametrize("text", ["x" * 50_000, "ä" * 50_000])
@pytest.mark.parametrize(
    "error",
    [
        lambda text: errors.StartRefused(text),
        lambda text: errors.ConfigurationError(errors.Problem("a", text)),
    ],
)
def test_a_last_line_that_is_too_long_is_cut(
    error: type[Exception], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, line = said(error(text), capsys)
    assert str(line["reason"]).endswith("…")
    assert KEPT // 2 < len(json.dumps(line)) < KEPT
