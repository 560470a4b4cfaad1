"""What a daemon does with what a destination refuses, or does not answer: letters and replays.

What each destination does with changes is in ``test_contract.py``.
"""

import pytest

from tests.daemon import until
from tests.destinations.copying import Copying, key_of


# One that stores its position, and one that does not. The refusals of all: test_contract.py.
@pytest.mark.parametrize("kind", ["postgresql", "nats"], scope="session")
def test_a_refused_event_is_a_dead_letter_and_the_others_arrive(logged: Copying) -> None:
    """It is in the middle of a batch. A replay is refused again: if the destination has a position,
    as the row of a snapshot."""
    run = logged.daemon(handler={"on_failure": "dead_letter"}).start()
    documents = [{"_id": each, "n": 0} for each in range(20)]
    documents[10] = {**logged.destination.refused, "_id": 10, "n": 0}
    logged.collection.insert_many(documents)
    until(lambda: run.metric("tailrace_dead_letters_waiting", handler="it") == 1, "a dead letter")
    logged.until_has(*range(10), *range(11, 20))
    logged.insert([20])
    logged.until_has(20)
    assert key_of(10) not in logged.documents
    assert [each.key for each in logged.sent] == [key_of(n) for n in range(21) if n != 10]
    with run.begun("dead-letters", "replay") as replay:
        output = "".join(replay.communicate(timeout=60))
    again = 2 if logged.destination.once else 1
    assert replay.returncode == (0 if logged.destination.once else 1), output
    until(lambda: len(run.logged("event.dead_lettered")) == again, "the refusal of the replay")
    until(lambda: run.metric("tailrace_dead_letters_waiting", handler="it") == 1, "the dead letter")
    assert key_of(10) not in logged.documents
    assert run.stop() == 0, run.log


# With the others no answer is an outage, or the handler begins again and waits for an answer.
@pytest.mark.parametrize("kind", ["nats", "redis"], scope="session")
def test_a_replay_delivers_what_was_set_aside(logged: Copying) -> None:
    """The attempts are spent because the destination does not answer in time."""
    run = logged.daemon(handler={"timeout_seconds": 2, "on_failure": "dead_letter"}).start()
    logged.insert([0])
    logged.until_has(0)
    logged.destination.pause()
    logged.insert([1])
    until(lambda: run.metric("tailrace_dead_letters_waiting", handler="it") == 1, "a dead letter")
    logged.destination.start()
    run.command("dead-letters", "replay")
    logged.until_equal()
    assert run.stop() == 0, run.log
