"""An event that fails alone, and an endpoint that is down or overloaded."""

from tailrace.destinations.http.lone_failures import LoneFailures


class Endpoint:
    """Accepts all but some events."""

    def __init__(self, *bad: str) -> None:
        self.bad = set(bad)
        self.lone = LoneFailures()

    def send(self, *events: str) -> list[int]:
        """Sends each event; returns how often each one that failed has failed alone."""
        alone = []
        for event in events:
            number = self.lone.begin()
            if event in self.bad or "all" in self.bad:
                alone.append(self.lone.failed(event))
            else:
                self.lone.accepted(event, number)
        return alone


def test_failures_count_while_others_are_accepted_between_them() -> None:
    endpoint = Endpoint("bad")
    counts = [endpoint.send("bad", f"good {n}") for n in range(4)]
    assert counts == [[0], [1], [2], [3]]


def test_when_nothing_else_comes_only_a_repetition_tells() -> None:
    endpoint = Endpoint("bad")
    assert endpoint.send("bad", "good", "bad", "bad", "bad") == [0, 1, 1, 1]
    assert endpoint.lone.is_quiet("bad")
    assert endpoint.send("good", "bad") == [2]
    assert endpoint.lone.is_quiet("bad")
    endpoint.lone.down()
    assert not endpoint.lone.is_quiet("bad")
    assert endpoint.send("bad") == [0]


def test_an_endpoint_that_accepts_nothing_is_down_whatever_was_before() -> None:
    endpoint = Endpoint("bad")
    endpoint.send("good", "bad", "good", "bad")
    endpoint.bad = {"all"}
    assert endpoint.send("one", "bad", "one", "bad", "bad") == [0] * 5


def test_what_was_sent_before_the_failure_says_nothing() -> None:
    """The requests that were under way when the endpoint went down."""
    lone = LoneFailures()
    early, late = lone.begin(), lone.begin()
    assert lone.failed("late") == 0
    lone.accepted("early", early)
    assert lone.failed("late") == 0
    assert late > early


def test_an_endpoint_that_fails_a_third_of_all_is_overloaded() -> None:
    """Each event is accepted at last, and none counts as failing alone for long."""
    endpoint = Endpoint("unlucky")
    for n in range(20):
        endpoint.bad = {"unlucky", *(f"{n} {m}" for m in range(10))}
        counts = endpoint.send("unlucky", *(f"{n} {m}" for m in range(30)))
        assert counts[0] == 0


def test_several_events_that_fail_alone_count_each() -> None:
    bad = [f"bad {n}" for n in range(6)]
    endpoint = Endpoint(*bad)
    endpoint.send(*bad)
    assert endpoint.send("good", *bad) == [1] * 6


def test_an_event_that_is_accepted_begins_again() -> None:
    endpoint = Endpoint("bad")
    endpoint.send("bad", "good", "bad")
    endpoint.bad.clear()
    endpoint.send("bad")
    endpoint.bad.add("bad")
    assert endpoint.send("bad", "good", "bad") == [0, 1]
