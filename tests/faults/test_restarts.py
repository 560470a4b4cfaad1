"""Failures that the stream cannot resume: the supervisor drains and restarts with back-off."""

from tests.daemon import Daemon, until
from tests.load import assert_whole
from tests.orders import Orders

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


def test_a_crash_before_the_first_checkpoint_interval_skips_nothing(orders: Orders) -> None:
    """The position of "now" is saved before anything is handled."""
    run = orders.daemon(checkpoint={"interval_seconds": 600}).start()
    until(lambda: run.status()["checkpoint"], "the first position")
    run.kill()
    orders.insert(*range(3))
    run.start()
    assert_whole(run, 3)
