"""The small HTTP server in a thread, and a service whose answers a test sets."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.to_thread
import httpx

from tailrace.control import ActionRefused, Api, Done, Health
from tailrace.control.bodies import (
    HandlerQuery,
    LetterBody,
    LettersBody,
    LettersQuery,
    OrderBody,
    ReplayBody,
    SeekBody,
    SnapshotBody,
    WhyQuery,
)
from tailrace.control.seeking import read_token
from tailrace.control.server_positions import read_time
from tailrace.control.skipping import SkipBody
from tailrace.event.key import read_key
from tailrace.observe.access import Access
from tailrace.observe.http import HttpServer, bind
from tailrace.observe.metrics import Metrics
from tailrace.observe.scrape import ScopeGauges

HERE = Access(loopback=True)


class Service:
    """What the service reports, and the scopes that it was told to restart."""

    def __init__(self) -> None:
        self.dead: list[str] = []
        self.unready: list[str] = []
        self.degraded: list[str] = []
        self.restarted: list[str] = []
        self.ordered: list[tuple[str, str, tuple[str, ...], str]] = []
        self.held: threading.Event | None = None
        """If set, questions about documents wait for it."""
        self.status: dict[str, Any] = {"scopes": {"orders": {"state": "streaming", "odd": {1, 2}}}}

    async def restart(self, scope: str, body: OrderBody, by: str) -> Done:
        self._require(scope, "scope 'busy' is streaming: only a halted one is restarted")
        self.restarted.append(scope)
        return Done(f"scope {scope!r} starts again", "halted", "starting")

    async def pause(self, scope: str, body: OrderBody, by: str) -> Done:
        self._require(scope, "others give it orders now: ask again")
        self.ordered.append((scope, "pause", (), ""))
        return Done("paused")

    resume = pause

    async def seek(self, scope: str, body: SeekBody, by: str) -> Done:
        self._require(scope, "others give it orders now: ask again")
        if body.at is not None:
            read_time(body.at)
        if body.token is not None:
            read_token(body.token)
        self.ordered.append((scope, "seek", (), ""))
        return Done("moved")

    async def skip(self, scope: str, body: SkipBody, by: str) -> Done:
        self._require(scope, "the server can send its next change")
        self.ordered.append((scope, "skip", (), ""))
        return Done("skipped")

    async def replay_letter(self, id: str, body: LetterBody, by: str) -> Done:
        self._require(id, "they are being replayed")
        self.ordered.append((id, "replay", (), ""))
        return Done("replayed")

    discard_letter = replay_letter

    async def replay_letters(self, body: LettersBody, by: str) -> Done:
        self.ordered.append(("", "replay", tuple(body.ids), ""))
        return Done("replayed")

    discard_letters = replay_letters

    async def dead_letters(self, query: LettersQuery) -> str:
        return '{"count": 0, "next": null, "letters": []}\n'

    async def replay(self, scope: str, body: ReplayBody, by: str) -> Done:
        self._require(scope, "a replay is running")
        self.ordered.append((scope, "replay", (), ""))
        return Done("begun")

    async def last_replay(self, scope: str, query: HandlerQuery) -> Mapping[str, Any]:
        return {"scope": scope, "replay": None}

    async def reload(self, *, dry_run: bool) -> Done:
        self.ordered.append(("", "reload", (), ""))
        return Done("nothing has changed", details={"dry_run": dry_run})

    async def positions(self, scope: str, query: HandlerQuery) -> Mapping[str, Any]:
        self._require(scope, "")
        return {"scope": scope, "positions": []}

    async def why(self, scope: str, query: WhyQuery) -> Mapping[str, Any]:
        self._require(scope, "")
        if self.held is not None:
            await anyio.to_thread.run_sync(self.held.wait)
        try:
            return {"scope": scope, "key": read_key(query.key).text}
        except ValueError as error:
            raise ActionRefused(400, str(error)) from error

    async def snapshot(self, scope: str, body: SnapshotBody, by: str) -> Done:
        if body.filter == "odd":
            raise ActionRefused(400, "the filter is not Extended JSON")
        self._require(scope, "snapshot 5f3a is not over")
        self.ordered.append((scope, body.action, tuple(body.collections), body.filter))
        return Done("accepted")

    def _require(self, scope: str, busy: str) -> None:
        if scope == "nowhere":
            raise ActionRefused(404, "there is no scope 'nowhere'")
        if scope == "busy":
            raise ActionRefused(409, busy)

    @property
    def health(self) -> Health:
        return Health(
            lambda: self.dead,
            lambda: self.unready,
            lambda: self.degraded,
            lambda: self.status,
            lambda: {"at": [], "scopes": {}},
        )

    def api(self, access: Access = HERE) -> Api:
        metrics = Metrics(["streaming"])
        metrics.watch("orders", lambda: ScopeGauges("streaming"))
        return Api(self, self.health, metrics.registry, access)  # type: ignore[arg-type]


@contextmanager
def serving(
    service: Service, access: Access = HERE, patience_seconds: float = 30
) -> Iterator[httpx.Client]:
    """A client of a server with these access rules."""
    with bind("127.0.0.1", 0) as listener:
        server = HttpServer(listener, service.api(access), patience_seconds=patience_seconds)
        thread = threading.Thread(target=anyio.run, args=(server.run,))
        thread.start()
        url = f"http://127.0.0.1:{server.port}"
        try:
            with httpx.Client(base_url=url, trust_env=False) as client:
                yield client
        finally:
            server.stop()
            thread.join()
