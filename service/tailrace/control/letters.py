"""Dead letters in the process that follows their scope: replayed through the open handler."""

from collections import Counter
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

import anyio

from tailrace.control.desired_state import subject_text
from tailrace.control.follower import (
    replay_refusal,
    require_followed,
    require_here,
    require_replayable,
)
from tailrace.control.letter_choice import ChosenQueues, DeadLetterCursor, LetterChoice
from tailrace.control.letter_list import listed, named
from tailrace.control.letter_snapshot import BY_SNAPSHOT, LetterSnapshot
from tailrace.control.outcome import ActionRefused, Done
from tailrace.engine import Supervisor, Watcher, WatcherState
from tailrace.engine.handle.letter_queues import replay_letters
from tailrace.engine.ports import DeadLetterStore, DesiredStateStore, Handler
from tailrace.errors import CheckpointFenced, DeadLetterError, describe
from tailrace.model.dead_letter import DeadLetter, LetterHead, LetterQueue
from tailrace.stream import Interrupt

T = TypeVar("T")

MOST_SECONDS = 8.0
"""After this time a request begins no dead letter but its first, so that its answer comes."""


@dataclass(slots=True)
class _Outcome:
    """What a request has done so far."""

    ends: float
    begun: bool = False
    done: int = 0
    failed: int = 0
    left: int = 0
    letters: list[dict[str, str]] = field(default_factory=list)
    refused: dict[str, ActionRefused] = field(default_factory=dict)
    waits: str = ""
    """For which destination the rest waits, if one is down."""
    next: DeadLetterCursor | None = None

    def more(self) -> bool:
        """Whether another dead letter may be begun."""
        first, self.begun = not self.begun, True
        return first or anyio.current_time() < self.ends

    def note(self, letter: DeadLetter | LetterHead, what: str) -> None:
        """Notes what became of a dead letter."""
        self.failed += what.startswith("failed: ")
        self.done += not what.startswith("failed: ")
        self.letters.append(named(letter) | {"outcome": what})

    def interrupted(self, verb: str, error: DeadLetterError) -> ActionRefused:
        """The answer where the store fails."""
        message = f"{verb} {number(self.done)}; when the store answers, "
        message += "GET /dead-letters shows what still waits"
        return ActionRefused(503, f"{message}: {describe(error)}")

    def answer(self, verb: str, more: str = "") -> Done:
        """Raises :class:`ActionRefused` if all that was asked for was refused."""
        if self.refused and not self.letters:
            raise next(iter(self.refused.values()))
        message = f"{verb} {number(self.done)}{more}"
        message += f"; {self.waits}: try again" if self.waits else ""
        message += "".join(f". Not those of {of}: {why}" for of, why in self.refused.items())
        details: dict[str, Any] = {"failed": self.failed, "left": self.left}
        details |= {verb: self.done, "letters": self.letters}
        details["refused"] = {of: str(why) for of, why in self.refused.items()}
        details["next"] = str(self.next) if self.next is not None else None
        return Done(message, number(self.done + self.left), number(self.left), details)


@dataclass(slots=True, eq=False)
class DeadLetters:
    """The dead letters of the scopes that ``supervisor`` follows, in ``store``."""

    supervisor: Supervisor
    store: DeadLetterStore
    desired_states: DesiredStateStore
    locks: Mapping[str, anyio.Lock]
    """See :class:`tailrace.control.control.Control`."""

    async def show(self, choice: LetterChoice, after: str, limit: int, *, events: bool) -> str:
        """A page of the waiting dead letters, oldest first, as JSON."""
        return await _stored(listed(self.store, choice, after, limit, events=events))

    async def replay(
        self, choice: LetterChoice, by: str, after: str = "", *, dry_run: bool = False
    ) -> Done:
        """Hands the dead letters to their handlers again, with all letters of their documents."""
        chosen = await _stored(choice.queues(self.store, DeadLetterCursor.of(after)))
        if not after and (unknown := sorted(choice.ids - chosen.ids)):
            raise _unknown(unknown[0])
        if dry_run:
            return self._would_replay(chosen)
        outcome = _Outcome(anyio.current_time() + MOST_SECONDS)
        before, by_snapshot = None, set[tuple[str, str]]()
        for of, run in groupby(chosen.first, key=itemgetter(0, 1)):
            queues = list(run)
            if of in by_snapshot or subject_text(*of) in outcome.refused:
                continue
            if before is not None and anyio.current_time() >= outcome.ends:
                outcome.next = DeadLetterCursor(chosen.first[before].arrival)
                break
            before = queues[-1]
            with ExitStack() as alone:
                try:
                    watcher, handler = self._open(*of)
                    alone.enter_context(self._alone(watcher.name))
                    if replay_refusal(handler):
                        by_snapshot.add(of)
                        queues = [queue for queue in chosen.first if queue[:2] == of]
                        states = self.desired_states
                        lock = self.locks[f"snapshot of {watcher.name}"]
                        snapshot = LetterSnapshot(watcher, self.store, states, by, lock)
                        await _stored(snapshot.instead(queues, outcome.note))
                        continue
                    require_replayable(watcher, handler)
                except ActionRefused as error:
                    outcome.refused[subject_text(*of)] = error
                    continue
                heads = [chosen.first[queue] for queue in queues]
                rest = await self._replay(watcher, handler, heads, outcome)
            if rest:
                left = await _stored(self.store.queue(rest[0]))
                at = left[0].identity if left else None
                outcome.next = DeadLetterCursor(chosen.first[rest[0]].arrival, at)
                break
        return outcome.answer("replayed", f"; {outcome.failed} failed again, {outcome.left} left")

    async def replay_one(self, choice: LetterChoice, by: str) -> Done:
        """Hands a dead letter to its handler again, with all letters of its document.

        ``next`` of the answer is the letter to ask for then.
        """
        done = await self.replay(choice, by)
        at = DeadLetterCursor.of(done.details["next"] or "").rest
        return replace(done, details={**done.details, "next": at[-1] if at else None})

    async def discard_one(self, id: str, choice: LetterChoice) -> Done:
        """Removes a dead letter, so that its event is never handled."""
        done = await self.discard(choice)
        if not done.details["letters"]:
            raise _unknown(id)
        return done

    async def discard(
        self, choice: LetterChoice, after: str = "", *, dry_run: bool = False
    ) -> Done:
        """Removes dead letters, so that their events are never handled."""
        if dry_run:
            would = await _stored(choice.count(self.store))
            message = f"{number(would)} would be discarded. Dry run: nothing was changed"
            return Done(message, details={"dry_run": True, "count": would})
        outcome = _Outcome(anyio.current_time() + MOST_SECONDS)
        try:
            await self._discard(choice, after, outcome)
        except DeadLetterError as error:
            raise outcome.interrupted("discarded", error) from error
        return outcome.answer("discarded")

    async def _discard(self, choice: LetterChoice, after: str, outcome: _Outcome) -> None:
        last = after
        async for head in choice.heads(self.store, after):
            if not outcome.more():
                outcome.next = DeadLetterCursor(last)
                break
            last = head.arrival
            if (of := f"scope {head.scope!r}") in outcome.refused:
                continue
            try:
                if self.supervisor.find(head.scope) is not None:
                    self._owner(head.scope)
                with self._alone(head.scope):
                    if await self.store.resolve(head, "discarded"):
                        outcome.note(head, "discarded")
            except ActionRefused as error:
                outcome.refused[of] = error

    def _would_replay(self, chosen: ChosenQueues) -> Done:
        """What a replay would do, by handler."""
        sizes, whys = Counter[tuple[str, str]](), dict[tuple[str, str], str]()
        for queue in chosen.first:
            sizes[queue[:2]] += chosen.sizes[queue]
        for of in sizes:
            try:
                _, handler = self._open(*of)
                whys[of] = BY_SNAPSHOT if replay_refusal(handler) else "would be replayed"
            except ActionRefused as error:
                whys[of] = f"would be refused: {error}"
        texts = [f"{number(sizes[of])} of {subject_text(*of)} {why}" for of, why in whys.items()]
        message = f"{'; '.join(texts) or number(0)}. Dry run: nothing was changed"
        return Done(message, details={"dry_run": True, "count": sizes.total()})

    async def _replay(
        self, watcher: Watcher, handler: Handler, heads: Sequence[LetterHead], outcome: _Outcome
    ) -> Sequence[LetterQueue]:
        """Replays the queues of the letters; returns those that are left when the time is over."""
        claim = watcher.claim

        def require() -> None:
            if self.supervisor.find(watcher.name) is not watcher:
                message = f"scope {watcher.name!r} was restarted, or changed by a reload"
                raise CheckpointFenced(f"{message}: try again")
            if claim is not watcher.claim or watcher.status.state is WatcherState.STANDBY:
                message = f"scope {watcher.name!r} is followed by another process now"
                raise CheckpointFenced(f"{message}: ask there")
            if claim.lease is not None:
                claim.lease.require()

        over, failure = Interrupt(), None
        async with anyio.create_task_group() as timing:
            timing.start_soon(_set_at, outcome.ends, over)
            try:
                done = await replay_letters(
                    self.store,
                    heads,
                    lambda event: watcher.scope.again(handler, event, over),
                    outcome.note,
                    require,
                    outcome.more,
                )
            except (CheckpointFenced, DeadLetterError) as error:
                failure = error
            timing.cancel_scope.cancel()
        if isinstance(failure, CheckpointFenced):
            message = f"replayed {number(outcome.done)}, and the others still wait: {failure}"
            raise ActionRefused(409, message) from failure
        if failure is not None:
            raise outcome.interrupted("replayed", failure) from failure
        outcome.left, outcome.waits = outcome.left + done.left, done.waits
        return done.rest

    def _open(self, scope: str, name: str) -> tuple[Watcher, Handler]:
        """The watcher of a scope that this process follows, and its open handler."""
        watcher = self._owner(scope)
        handlers = {each.handler.name: each.handler for each in watcher.plan.routed}
        if name not in handlers:
            message = f"handler {name!r} gets no changes of scope {watcher.name!r} any more"
            raise ActionRefused(409, f"{message}: discard its dead letters, or add the route")
        return watcher, handlers[name]

    def _owner(self, scope: str) -> Watcher:
        """The watcher of a scope that this process follows."""
        watcher = self.supervisor.find(scope)
        if watcher is None:
            message = f"scope {scope!r} of that dead letter is not configured here"
            raise ActionRefused(409, f"{message}: add it again, or discard the dead letter")
        require_here(watcher)
        require_followed(watcher)
        return watcher

    @contextmanager
    def _alone(self, scope: str) -> Iterator[None]:
        """Two replays at once would mix up the order of a document's dead letters."""
        lock = self.locks[f"dead letters of {scope}"]
        try:
            lock.acquire_nowait()
        except anyio.WouldBlock as error:
            message = f"the dead letters of scope {scope!r} are being replayed or discarded"
            raise ActionRefused(409, f"{message}: try again when that has ended") from error
        try:
            yield
        finally:
            lock.release()


async def _set_at(time: float, interrupt: Interrupt) -> None:
    await anyio.sleep_until(time)
    interrupt.set()


async def _stored(call: Awaitable[T]) -> T:
    try:
        return await call
    except DeadLetterError as error:
        raise ActionRefused(503, f"{describe(error)}: try again when it answers") from error


def _unknown(id: str) -> ActionRefused:
    message = f"dead letter {id!a:.60} is not waiting: GET /dead-letters shows those that are"
    return ActionRefused(404, message)


def number(letters: int) -> str:
    """A number of dead letters, for people."""
    return "1 dead letter" if letters == 1 else f"{letters} dead letters"
