from tailrace.observe.history import History, Reading


def test_a_quarter_of_an_hour_is_kept_of_the_scopes_that_are_there() -> None:
    readings: list[Reading] = [("old", 1, None), ("gone", 1, 0.0)]
    clock = 1000.0
    history = History(lambda: readings, lambda: clock)
    for number in range(200):
        clock += 5
        if number == 100:
            readings = [("old", 1, None), ("new", 7, 1.25)]
        history.sample()
    found = history.document()
    assert len(found["at"]) == 180
    assert (found["at"][0], found["at"][-1]) == (1105.0, 2000.0)
    assert {name: len(each["events"]) for name, each in found["scopes"].items()} == {
        "old": 180,
        "new": 100,
    }
    assert found["scopes"]["old"]["lag_seconds"][-1] is None
    assert (found["scopes"]["new"]["events"][0], found["scopes"]["new"]["lag_seconds"][0]) == (
        7,
        1.2,
    )
