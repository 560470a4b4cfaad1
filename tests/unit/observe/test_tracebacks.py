"""The part of a handler's traceback that a log line shows."""

from structlog.testing import capture_logs

from tailrace.engine.handle.delivery import Handled
from tailrace.observe.tracebacks import LONGEST, frames_of
from tests.unit.engine.handle.test_retry import Case, Refusing, event


def deep(levels: int) -> None:
    if not levels:
        raise ValueError("too deep")
    deep(levels - 1)


def caught(levels: int) -> ValueError:
    try:
        deep(levels)
    except ValueError as error:
        return error
    raise AssertionError


def test_a_deep_traceback_keeps_its_ends() -> None:
    text = frames_of(caught(500))
    assert "in caught" in text
    assert "frames left out)" in text
    assert text.endswith('raise ValueError("too deep")')
    assert len(text) <= LONGEST + 60


def test_a_traceback_tells_the_cause_too() -> None:
    try:
        try:
            deep(0)
        except ValueError as cause:
            raise OSError("not written") from cause
    except OSError as error:
        text = frames_of(error)
    assert "caused by ValueError: too deep" in text
    assert text.index("not written") < text.index("caused by")


async def test_the_frames_of_a_handler_come_without_those_of_the_engine() -> None:
    case = Case(Refusing(n1=3), attempts=3)
    with capture_logs() as logs:
        await case.delivery.deliver_all([event(1, "a")], Handled())
    assert [log["event"] for log in logs] == ["handler.failed"] * 2 + ["event.dead_lettered"]
    for log in logs:
        assert log["document_key"] == '{"_id": "a"}'
        assert log["event_id"] == event(1).token.digest
        assert "in on_event" in log["traceback"]
        assert "service/tailrace/engine" not in log["traceback"]
