"""Dead letters in the process that follows their scope: replayed through the open handler."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import anyio
from bson import json_util

from tailrace.control.bodies import LetterBody, LettersQuery
from tailrace.control.outcome import ActionRefused, Done
from tailrace.control.spans import require_followed, require_here, require_replayable
from tailrace.engine import Supervisor, Watcher, WatcherState
from tailrace.engine.handle.replay import Replayed, Report, event_of, queues, replay_letters
from tailrace.engine.ports import DeadLetterStore, Handler
from tailrace.errors import CheckpointFenced, DeadLetterError, describe
from tailrace.event.extended_json import to_json
from tailrace.model.dead_letter import DeadLetter
from tailrace.why.key import read_key

_MOST_SECONDS = 8.0
"""After this time a replay begins no letter but its first, so that its answer comes."""


@dataclass(slots=True, eq=False)
class DeadLetters:
    """The dead letters of the scopes that ``supervisor`` follows, in ``store``."""

    supervisor: Supervisor
    store: DeadLetterStore
    most_seconds: float = _MOST_SECONDS
    _busy: set[str] = field(default_factory=set)
    """The scopes whose letters are being replayed or discarded."""

    async def show(self, query: LettersQuery) -> Mapping[str, Any]:
        """The waiting letters, oldest first, in JSON types."""
        if query.key is None:
            found = await self._letters(query.scope, query.handler)
        else:
            found = await self._of_document(query.key, query.scope, query.handler)
        return {"count": len(found), "letters": [shown(each) for each in found[: query.limit]]}

    async def _of_document(
        self, text: str, scope: str | None, handler: str | None
    ) -> Sequence[DeadLetter]:
        try:
            key = read_key(text)
        except ValueError as error:
            raise ActionRefused(400, f"key: {error}") from error
        found = await _stored(partial(self.store.letters_of, scope, key.is_of))
        chosen = [each for each in found if handler in (None, each.handler)]
        return sorted(chosen, key=lambda each: each.at)

    async def replay(self, id: str, body: LetterBody) -> Done:
        """Hands a letter to its handler again, with all letters of its document."""
        chosen = await self._chosen(id, body)
        handled, failed, left = 0, 0, 0
        outcomes = list[Mapping[str, str]]()

        def report(letter: DeadLetter, what: str) -> None:
            outcomes.append(_named(letter) | {"outcome": what})

        for scope, letters in _by_scope(chosen):
            watcher = self._owner(scope)
            with self._alone(scope):
                handlers = _handlers(watcher, {each.handler for each in letters})
                done = await self._replay(watcher, handlers, letters, report)
            handled, failed, left = (
                handled + done.replayed,
                failed + done.failed,
                left + done.left,
            )
        message = f"replayed {number(handled)}; {failed} failed again, {left} left"
        details = {"replayed": handled, "failed": failed, "left": left, "letters": outcomes}
        if left and not failed:  # the time is over
            found = queues(await self._letters(body.scope, body.handler), chosen).values()
            details["next"] = next((each[0].id for each in found), None)
        return Done(message, number(handled + left), number(left), details)

    async def discard(self, id: str, body: LetterBody) -> Done:
        """Removes a letter, so that its event is never handled."""
        chosen = await self._chosen(id, body)
        gone = list[Mapping[str, str]]()
        for scope, letters in _by_scope(chosen):
            if self.supervisor.find(scope) is not None:
                self._owner(scope)
            with self._alone(scope):
                for letter in letters:
                    if await _stored(partial(self.store.resolve, letter, "discarded")):
                        gone.append(_named(letter) | {"outcome": "discarded"})
        message = f"discarded {number(len(gone))}"
        return Done(message, number(len(chosen)), "none", {"letters": gone})

    async def _replay(
        self,
        watcher: Watcher,
        handlers: Mapping[str, Handler],
        letters: Sequence[DeadLetter],
        report: Report,
    ) -> Replayed:
        ends, claim = anyio.current_time() + self.most_seconds, watcher.claim
        asked, replayed = count(), 0

        def counted(letter: DeadLetter, what: str) -> None:
            nonlocal replayed
            replayed += what == "replayed"
            report(letter, what)

        def more() -> bool:
            return next(asked) == 0 or anyio.current_time() < ends

        def require() -> None:
            if self.supervisor.find(watcher.name) is not watcher:
                message = f"scope {watcher.name!r} was restarted, or changed by a reload"
                raise CheckpointFenced(f"{message}: ask again")
            if claim is not watcher.claim or watcher.status.state is WatcherState.STANDBY:
                message = f"scope {watcher.name!r} is followed by another process now"
                raise CheckpointFenced(f"{message}: ask there")
            if claim.lease is not None:
                claim.lease.require()

        try:
            return await replay_letters(
                self.store,
                handlers,
                letters,
                counted,
                {watcher.name: claim.epoch},
                require,
                watcher.turn,
                more,
            )
        except CheckpointFenced as error:
            message = f"replayed {number(replayed)}, and the others still wait: {error}"
            raise ActionRefused(409, message) from error
        except DeadLetterError as error:
            message = (
                f"replayed {number(replayed)}; when the store answers, GET /dead-letters shows"
            )
            raise ActionRefused(503, f"{message} what still waits: {describe(error)}") from error

    def _owner(self, scope: str) -> Watcher:
        """The watcher of a scope that this process follows."""
        watcher = self.supervisor.find(scope)
        if watcher is None:
            message = f"scope {scope!r} of that dead letter is not configured here"
            raise ActionRefused(409, f"{message}: add it again, or discard the letter")
        require_here(watcher)
        require_followed(watcher)
        return watcher

    @contextmanager
    def _alone(self, scope: str) -> Iterator[None]:
        """Two replays at once would mix up the order of a document's letters."""
        if scope in self._busy:
            message = f"the dead letters of scope {scope!r} are being replayed or discarded"
            raise ActionRefused(409, f"{message}: ask again when that has ended")
        self._busy.add(scope)
        try:
            yield
        finally:
            self._busy.discard(scope)

    async def _chosen(self, id: str, body: LetterBody) -> Sequence[DeadLetter]:
        letters = await self._letters(body.scope, body.handler)
        found = [each for each in letters if each.id == id]
        if not found:
            message = (
                f"dead letter {id!a:.60} is not waiting: GET /dead-letters shows those that are"
            )
            raise ActionRefused(404, message)
        return found

    async def _letters(self, scope: str | None, handler: str | None) -> Sequence[DeadLetter]:
        found: Sequence[DeadLetter] = await _stored(partial(self.store.letters, scope, handler))
        return found


def _handlers(watcher: Watcher, names: Iterable[str]) -> Mapping[str, Handler]:
    """The scope's handlers, if those of these names can get letters."""
    handlers = {each.handler.name: each.handler for each in watcher.plan.routed}
    for name in sorted(names):
        if name not in handlers:
            message = f"handler {name!r} gets no changes of scope {watcher.name!r} any more"
            raise ActionRefused(409, f"{message}: discard its dead letters, or add the route")
        require_replayable(watcher, handlers[name])
    return handlers


async def _stored(call: Callable[[], Any]) -> Any:
    try:
        return await call()
    except DeadLetterError as error:
        raise ActionRefused(503, f"{describe(error)}: ask again when it answers") from error


def shown(letter: DeadLetter) -> Mapping[str, Any]:
    """A letter in JSON types, with its whole event as relaxed Extended JSON.

    ``document`` is the same for all letters of a document.
    """
    event = event_of(letter)
    try:
        content = json.loads(to_json(letter.raw, canonical=False))
    except ValueError:
        content = None
    return {
        **_named(letter),
        "key": json_util.dumps(event.document_key) if event and event.document_key else None,
        "document": hashlib.sha256(letter.key).hexdigest()[:12] if letter.key else None,
        "error": letter.error,
        "attempts": letter.attempts,
        "at": letter.at.isoformat(),
        "event": content,
    }


def _named(letter: DeadLetter) -> dict[str, str]:
    return {"id": letter.id, "scope": letter.scope, "handler": letter.handler}


def _by_scope(letters: Sequence[DeadLetter]) -> Iterator[tuple[str, Sequence[DeadLetter]]]:
    for scope in dict.fromkeys(each.scope for each in letters):
        yield scope, [each for each in letters if each.scope == scope]


def number(letters: int) -> str:
    """A number of letters, for people."""
    return "1 dead letter" if letters == 1 else f"{letters} dead letters"
