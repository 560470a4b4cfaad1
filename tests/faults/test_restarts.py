"""Failures that the stream cannot resume: the supervisor drains and restarts with back-off.

Only one event is scripted, because mongod refuses a pipeline that removes tokens.
"""

from typing import Any

from tests.daemon import Daemon, Make, until
from tests.faults.odd import Odd
from tests.load import assert_whole
from tests.orders import Orders
from tests.scripted import ScriptedSet

FIRST, CAP = 0.1, 0.4
BACKOFF = {"first_seconds": FIRST, "cap_seconds": CAP}


def delays(run: Daemon) -> list[float]:
    return [entry["delay_seconds"] for entry in run.logged("watcher.restarting")]


def assert_grows(delays: list[float]) -> None:
    """The delays double up to the cap, each reduced at random by up to half."""
    for number, delay in enumerate(delays):
        full = min(FIRST * 2**number, CAP)
        assert full / 2 - 0.001 <= delay <= full + 0.001, delays


def test_a_failed_resume_restarts_from_the_checkpoint_ever_more_slowly(orders: Orders) -> None:
    run = orders.daemon(supervisor=BACKOFF).start()
    with orders.load(0.05) as load:
        load.more()
        until(lambda: run.status()["checkpoint"], "a checkpoint")
        orders.server.fail("aggregate", times=5, appName="tailrace", errorCode=8000)
        orders.server.fail_reads(11602)
        until(lambda: len(delays(run)) == 5, "the failed resume, and four failed restarts")
        run.until_ready()
        load.more()
        until(lambda: len(run.ids()) > load.written - 10, "the changes meanwhile")
        until(lambda: run.status()["lag_seconds"].get("committed") == 0, "a new checkpoint")
        assert run.metric("tailrace_watcher_restarts_total", reason="stream") == 5
        assert run.status()["resumes"] == 0
        assert "8000" in run.status()["last_error"]
        assert_grows(delays(run))
        # Each run began at the last checkpoint: the first run drained, so the position is the same.
        (position,) = {entry["at"] for entry in run.logged("stream.starting")[1:]}
        assert position.startswith("resumeAfter")
        # The checkpoint has advanced since, so the next failure waits for the first delay again.
        orders.server.fail("getMore", appName="tailrace", errorCode=8000)
        until(lambda: len(delays(run)) == 6, "one more restart")
        assert_grows(delays(run)[5:])
        run.until_ready()
    assert_whole(run, load.written)


def test_opening_a_stream_is_not_progress(orders: Orders) -> None:
    """Each aggregate succeeds while the oplog advances, but each first read fails."""
    orders.insert(0)
    run = orders.daemon(supervisor=BACKOFF)
    orders.server.fail("getMore", times=4, appName="tailrace", errorCode=8000)
    run.start(ready=False)
    for number in range(1, 5):
        orders.insert(number, collection="others")
        until(lambda number=number: len(delays(run)) >= number, f"restart {number}")
    run.until_ready()
    assert_grows(delays(run))
    orders.insert(1)
    run.until_events(1)
    assert run.stop() == 0
    assert run.ids() == [1]


def test_a_crash_before_the_first_checkpoint_interval_skips_nothing(orders: Orders) -> None:
    """The position of "now" is saved before anything is handled."""
    run = orders.daemon(checkpoint={"interval_seconds": 600}).start()
    until(lambda: run.status()["checkpoint"], "the first position")
    run.kill()
    orders.insert(*range(3))
    run.start()
    assert_whole(run, 3)


def test_started_events_are_finished_before_the_restart(orders: Orders) -> None:
    """A slow handler is in the middle of a reply when the stream fails."""
    odd = Odd(orders, "slow", checkpoint={"interval_seconds": 60}, delivery={"lanes": 4})
    odd.run.start()
    odd.insert(*range(20))
    until(lambda: len(odd.noted("begun")) == 4, "as many as may run at once")
    orders.server.fail("getMore", appName="tailrace", errorCode=8000)
    until(lambda: odd.run.logged("stream.reopening"), "the failure")
    odd.open()
    odd.until_noted("ended", *range(20))
    odd.ends_well()
    assert sorted(odd.noted("ended")) == list(range(20))


def test_an_event_without_its_token_halts_after_earlier_events(
    scripted: ScriptedSet, daemon: Make
) -> None:
    """All events are in one reply, because they exist when the run starts."""
    run = daemon(scripted.uri).start()
    scripted.insert("shop.orders", {"_id": 0})
    run.until_events(1)
    assert run.stop() == 0
    insert: dict[str, Any] = {"operationType": "insert", "ns": {"db": "shop", "coll": "orders"}}
    for number, lacks in ((1, ()), (2, ()), (99, ("_id",)), (3, ())):
        scripted.append({**insert, "documentKey": {"_id": number}}, omit=lacks)
    for _ in range(2):  # the second run reaches the same event, and repeats nothing
        run.start(ready=False)
        assert run.wait() == 1
        assert run.ids() == [0, 1, 2]
    halted = run.logged("scope.halted")[0]
    assert "Cannot provide resume functionality when the resume token is missing" in halted["error"]
