"""What the stream cannot mend goes to the supervisor: drained, from its position, with back-off."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import bson
import pytest

from tests.daemon import Daemon, until
from tests.faults.load import NAMESPACE, Load, assert_whole, scripted_load
from tests.mongod import ReplicaSet
from tests.scripted import RESUMABLE, Command, ScriptedSet

pytestmark = pytest.mark.integration

Make = Callable[..., Daemon]
FIRST, CAP = 0.1, 0.4


def delays(run: Daemon) -> list[float]:
    return [entry["delay_seconds"] for entry in run.logged("watcher.restarting")]


def assert_grows(delays: list[float]) -> None:
    """Doubling up to the cap, each with jitter of its half."""
    for number, delay in enumerate(delays):
        full = min(FIRST * 2**number, CAP)
        assert full / 2 - 0.001 <= delay <= full + 0.001, delays


def test_a_failed_resume_restarts_from_the_checkpoint_ever_more_slowly(
    scripted: ScriptedSet, daemon: Make
) -> None:
    backoff = {"first_seconds": FIRST, "cap_seconds": CAP}
    run = daemon(scripted.uri, supervisor=backoff).start()
    with scripted_load(scripted, 0.05) as load:
        load.more()
        until(lambda: run.status()["checkpoint"], "a checkpoint")
        scripted.clear()
        refusing = scripted.fail("aggregate", times=5, code=8000)
        scripted.fail("getMore", code=11602, labels=[RESUMABLE])
        until(lambda: refusing.hits == 5, "the resume, and four restarts")
        until(lambda: run.get("/readyz")[0] == 200, "readiness")
        load.more()
        until(lambda: len(run.ids()) > load.written - 10, "the changes meanwhile")
        until(lambda: run.status()["lag_seconds"].get("committed") == 0, "a new checkpoint")
        assert run.metric("tailrace_watcher_restarts_total", reason="stream") == 5
        assert run.status()["resumes"] == 0
        assert "8000" in run.status()["last_error"]
        assert_grows(delays(run))
        # Each began where the last checkpoint was: one drained run, one position.
        positions = {str(c.change_stream) for c in scripted.commands("aggregate")[1:]}
        assert len(positions) == 1
        assert "resumeAfter" in positions.pop()
        # It has moved since: the next failure waits for the first delay again.
        scripted.fail("getMore", code=8000)
        until(lambda: len(delays(run)) == 6, "one more restart")
        assert_grows(delays(run)[5:])
        until(lambda: run.get("/readyz")[0] == 200, "readiness")
    assert_whole(run, load.written)


def test_an_opening_alone_is_no_progress(scripted: ScriptedSet, daemon: Make) -> None:
    """Each aggregate succeeds beside a moving oplog, and each first read fails: the delays grow."""
    backoff = {"first_seconds": FIRST, "cap_seconds": CAP}
    run = daemon(scripted.uri, supervisor=backoff).start()
    with Load(lambda _: scripted.noop(), 0.05):
        scripted.fail("getMore", times=4, code=8000)
        until(lambda: len(delays(run)) == 4, "four restarts")
        until(lambda: run.get("/readyz")[0] == 200, "readiness")
    assert_grows(delays(run))
    stages = [c.change_stream or {} for c in scripted.commands("aggregate")]
    assert len({str(stage.get("resumeAfter")) for stage in stages}) == 2, "none, then the first"
    scripted.insert_many(NAMESPACE, range(2))
    assert_whole(run, 2)


def scope(database: str) -> list[dict[str, Any]]:
    shown = {"name": "orders", "database": database, "collection": "orders"}
    return [{**shown, "max_await_time_ms": 200}]


def insert(server: ReplicaSet, database: str, numbers: range) -> None:
    with server.client() as client:
        client[database].orders.insert_many([{"_id": number} for number in numbers])


def test_a_crash_before_the_first_checkpoint_interval_skips_nothing(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    """Where "now" was is remembered before anything is handled."""
    run = daemon(
        mongod.uri,
        scopes=scope(database),
        checkpoint={"path": "checkpoints.db", "interval_seconds": 600},
    ).start()
    until(lambda: run.status()["checkpoint"], "the first position")
    run.signal(signal.SIGKILL)
    run.wait()
    insert(mongod, database, range(3))
    run.start()
    assert_whole(run, 3)


def test_what_was_begun_is_finished_before_the_restart(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    """A slow handler is in the middle of a reply when the stream fails."""
    run = daemon(
        mongod.uri,
        scopes=scope(database),
        checkpoint={"path": "checkpoints.db", "interval_seconds": 60},
        handlers={"mine": {"type": "python", "target": "slow:handle"}},
        routes=[{"scope": "orders", "handlers": ["mine"]}],
        delivery={"lanes": 4},
    )
    (run.directory / "slow.py").write_text(
        "import anyio\n"
        "file = open('handled', 'a', buffering=1)\n"
        "async def handle(event):\n"
        "    await anyio.sleep(0.05)\n"
        "    print(event.document_key['_id'], file=file)\n"
    )
    run.start()
    handled = run.directory / "handled"
    insert(mongod, database, range(40))
    until(lambda: handled.read_text().count("\n") >= 3, "the first events")
    mongod.fail("getMore", appName="tailrace", errorCode=8000)
    until(lambda: run.status()["restarts"] == 1, "the restart")
    insert(mongod, database, range(40, 50))
    until(lambda: handled.read_text().count("\n") >= 50, "every event")
    assert run.stop() == 0
    assert sorted(map(int, handled.read_text().split())) == list(range(50))


def test_a_stream_that_ends_without_a_word_is_a_fault(scripted: ScriptedSet, daemon: Make) -> None:
    """As where a pipeline filters the invalidate away: cursor id 0, no event and no error."""
    ended: dict[str, Any] = {
        "ok": 1,
        "cursor": {"id": bson.Int64(0), "ns": NAMESPACE, "nextBatch": []},
    }
    left = 3

    def end(command: Command) -> dict[str, Any] | None:
        nonlocal left
        if command.name != "getMore" or not left:
            return None
        left -= 1
        return ended

    run = daemon(scripted.uri, supervisor={"first_seconds": FIRST, "cap_seconds": CAP}).start()
    with scripted_load(scripted) as load:
        load.more()
        scripted.on_command(end)
        until(lambda: run.status()["restarts"] == 3, "three restarts")
        assert run.metric("tailrace_watcher_restarts_total", reason="stream") == 3
        assert "without an invalidate" in run.status()["last_error"]
        assert all(delay >= FIRST / 2 for delay in delays(run))
        load.more()
    assert run.status()["resumes"] == 0
    assert_whole(run, load.written)


def test_an_event_without_its_token_halts_behind_those_before_it(
    scripted: ScriptedSet, daemon: Make
) -> None:
    run = daemon(scripted.uri).start()
    scripted.insert_many(NAMESPACE, range(3))
    run.until_events(3)
    nameless = {
        "operationType": "insert",
        "ns": {"db": "shop", "coll": "orders"},
        "documentKey": {"_id": 99},
    }

    def write() -> None:
        """In one reply: two events, one that lost its _id, one more."""
        oplog = scripted._server.oplog
        for number in (3, 4):
            oplog.append({**nameless, "documentKey": {"_id": number}})
        oplog.append(nameless, omit=("_id",))
        oplog.append({**nameless, "documentKey": {"_id": 5}})

    scripted._call(write)
    assert run.wait() == 1
    (halted,) = run.logged("scope.halted")
    assert "Cannot provide resume functionality when the resume token is missing" in halted["error"]
    assert run.ids() == [0, 1, 2, 3, 4]
    # A restart comes to the same event, and repeats nothing.
    run.start(ready=False)
    assert run.wait() == 1
    assert run.ids() == [0, 1, 2, 3, 4]
