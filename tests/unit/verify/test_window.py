"""The moments between which rows stand."""

from bson.timestamp import Timestamp

from tailrace.verify.window import Window, before, window

HANDLED, NOW = Timestamp(100, 2), Timestamp(100, 9)


def test_rows_with_a_position_are_compared_as_of_it() -> None:
    position = Timestamp(100, 5)
    assert window(HANDLED, position, NOW, None) == Window(Timestamp(100, 4), position, NOW)


def test_a_position_of_long_ago_has_everything_that_is_handled() -> None:
    assert window(HANDLED, Timestamp(3, 1), NOW, None) == Window(Timestamp(100, 1), HANDLED, NOW)


def test_rows_without_a_position_or_with_looked_up_documents_may_be_as_new_as_now() -> None:
    wide = Window(Timestamp(100, 1), NOW, NOW)
    assert window(HANDLED, None, NOW, None) == wide
    for full_document in ("lookup", "updateLookup"):
        assert window(HANDLED, HANDLED, NOW, full_document) == wide


def test_a_server_that_answers_late_does_not_end_the_window_before_its_begin() -> None:
    found = window(HANDLED, Timestamp(200, 1), NOW, "lookup")
    assert found == Window(Timestamp(200, 0), Timestamp(200, 1), Timestamp(200, 1))


def test_the_time_before_the_first_one_of_a_second_is_the_last_of_the_one_before() -> None:
    assert before(Timestamp(100, 0)) == Timestamp(99, 2**32 - 1)
