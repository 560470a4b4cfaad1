"""The last minutes of each scope: what is kept, and how much of it."""

import json

from tailrace.observe.history import History, Sample

NOON = 1_764_500_400.0


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        self.now += 5
        return self.now


def sample(events: int, lag: float | None = 0.0, errors: int = 0, state: str = "ok") -> Sample:
    return Sample(state, lag, events, errors)


def test_counts_become_what_came_in_each_step() -> None:
    history = History(Clock())
    for events, errors in ((10, 0), (10, 2), (25, 3)):
        history.note({"orders": sample(events, errors=errors)})
    series = history.document()["scopes"]["orders"]
    assert series["events"] == [10, 0, 15]
    assert series["errors"] == [0, 2, 1]


def test_an_unknown_lag_is_null() -> None:
    history = History(Clock())
    history.note({"orders": sample(0, None)})
    history.note({"orders": sample(0, 2.0)})
    text = json.dumps(history.document(), allow_nan=False)
    assert json.loads(text)["scopes"]["orders"]["lag_seconds"] == [None, 2.0]


def test_the_oldest_is_forgotten_and_the_counts_stay_right() -> None:
    history = History(Clock(), steps=3)
    for number in range(10):
        history.note({"orders": sample(number * 7, float(number), state=f"s{number}")})
    document = history.document()
    assert document["steps"] == 3
    assert document["scopes"]["orders"] == {
        "state": ["s7", "s8", "s9"],
        "lag_seconds": [7.0, 8.0, 9.0],
        "events": [7, 7, 7],
        "errors": [0, 0, 0],
    }
    assert document["times"] == [
        "2025-11-30T11:00:40+00:00",
        "2025-11-30T11:00:45+00:00",
        "2025-11-30T11:00:50+00:00",
    ]
