"""The moments as of which documents are compared with rows."""

from bson.timestamp import Timestamp

from tailrace.model import StartPoint
from tailrace.verify.window import Reached, Window, window

HANDLED, NOW = Timestamp(100, 2), Timestamp(100, 9)
REACHED = Reached(HANDLED, StartPoint(at_operation_time=HANDLED))


def test_rows_with_a_position_are_compared_as_of_it() -> None:
    position = Timestamp(100, 5)
    assert window(REACHED, position, NOW, None) == Window(REACHED, position, position, NOW)


def test_a_position_of_long_ago_has_everything_that_is_handled() -> None:
    assert window(REACHED, Timestamp(3, 1), NOW, None) == Window(REACHED, HANDLED, HANDLED, NOW)


def test_rows_without_a_position_or_with_looked_up_documents_may_be_as_new_as_now() -> None:
    wide = Window(REACHED, HANDLED, NOW, NOW)
    assert window(REACHED, None, NOW, None) == wide
    for full_document in ("lookup", "updateLookup"):
        assert window(REACHED, HANDLED, NOW, full_document) == wide


def test_a_server_that_answers_late_does_not_end_the_window_before_its_begin() -> None:
    last = Timestamp(200, 1)
    assert window(REACHED, last, NOW, "lookup") == Window(REACHED, last, last, last)
