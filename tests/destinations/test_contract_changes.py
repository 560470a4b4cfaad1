"""What every destination does with changes: order, refusals, drops, replays, a trial."""

from tests.daemon import until
from tests.destinations.copying import Copying, assert_untroubled, key_of, until_seen


def test_changes_of_a_document_arrive_in_order_and_the_copy_equals_the_source(
    logged: Copying,
) -> None:
    run = logged.daemon().start()
    with logged.load() as load:
        load.more(300)
    logged.until_equal()
    logged.assert_in_order()
    assert_untroubled(run)


def test_inserts_updates_replacements_and_deletes_arrive(copied: Copying) -> None:
    run = copied.daemon().start()
    copied.insert(range(40), text="ä\n😀")
    copied.count(range(20))
    copied.collection.replace_one({"_id": 20}, {"n": 1, "other": [1, {"a": None}]})
    copied.collection.delete_many({"_id": {"$gte": 30}})
    copied.insert([35])
    copied.until_equal()
    assert_untroubled(run)


def test_a_refused_event_is_a_dead_letter_and_the_others_arrive(logged: Copying) -> None:
    """It is in the middle of a batch. A replay is refused again, or for the sake of a position."""
    refused = logged.destination.refused
    if refused is None:
        return
    run = logged.daemon(handler={"on_failure": "dead_letter"}).start()
    documents = [{"_id": each, "n": 0} for each in range(20)]
    documents[10] = {**refused, "_id": 10, "n": 0}
    logged.collection.insert_many(documents)
    until(lambda: run.metric("tailrace_dead_letters_waiting", handler="it") == 1, "a dead letter")
    logged.until_has(*range(10), *range(11, 20))
    logged.insert([20])
    logged.until_has(20)
    assert key_of(10) not in logged.documents
    assert [each.key for each in logged.sent] == [key_of(n) for n in range(21) if n != 10]
    with run.begun("dead-letters", "replay") as replay:
        told = "".join(replay.communicate(timeout=60))
    assert replay.returncode == 1
    assert not logged.destination.once or "position" in told
    assert run.metric("tailrace_dead_letters_waiting", handler="it") == 1
    assert len(run.logged("event.dead_lettered")) == 1
    assert run.stop() == 0, run.log


def test_a_replay_delivers_what_was_set_aside(logged: Copying) -> None:
    """The attempts are spent because the destination does not answer in time."""
    if logged.destination.handler["type"] not in ("nats", "redis"):
        return  # no answer is an outage, or it begins again and waits for an answer
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


def test_what_comes_after_a_drop_arrives_after_it(copied: Copying) -> None:
    """Documents may overtake each other, but nothing overtakes the drop."""
    run = copied.daemon(scope={"collection": None, "full_document": "lookup"}).start()
    copied.insert(range(20))
    copied.until_equal()
    copied.orders.drop()
    copied.insert(range(10, 30))
    if copied.destination.sent() is None:
        copied.until_equal()
    else:
        until_seen(lambda: len({each.key for each in copied.sent} - {None}) == 30, "all keys")
        whole = [each for each in copied.sent if each.key or each.operation == "drop"]
        drops = [at for at, each in enumerate(whole) if each.operation == "drop"]
        assert drops in ([], [20])
        keys = [each.key for each in whole if each.key]
        assert set(keys[:20]) == {key_of(n) for n in range(20)}
        assert set(keys[20:]) == {key_of(n) for n in range(10, 30)}
    assert_untroubled(run)


def test_a_trial_says_what_a_start_would_find_and_leaves_nothing(logged: Copying) -> None:
    logged.insert([1])
    run = logged.daemon()
    run.configured()
    with run.begun("check", "--connect") as check:
        out, errors = check.communicate(timeout=60)
    assert (check.returncode, errors) == (0, ""), out
    assert any(line.startswith("handler it: ") for line in out.splitlines())
    logged.destination.stop()
    with run.begun("check", "--connect") as check:
        out, errors = check.communicate(timeout=60)
    assert check.returncode == 1, out
    (line,) = errors.splitlines()
    assert "handlers.it" in line
    logged.destination.start()
    assert (logged.sent, logged.documents) == ([], {})
