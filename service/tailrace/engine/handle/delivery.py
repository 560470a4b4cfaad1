"""Hands events to one handler of one scope, until each is handled or dead-lettered."""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field

from tailrace.engine.handle.attempts import Attempts
from tailrace.engine.handle.refused_events import divided, parts
from tailrace.engine.ports import PerBatch, called_with
from tailrace.errors import EventRefused, Refused
from tailrace.event import ChangeEvent
from tailrace.model import ResumeToken


@dataclass(slots=True)
class Handled:
    """The handled events of one sequence, while it is not handled as a whole.

    ``dead_letters`` are those of the ``tokens`` that became dead letters.
    """

    tokens: set[ResumeToken] = field(default_factory=set)
    dead_letters: set[ResumeToken] = field(default_factory=set)


class Delivery(Attempts):
    """Gets the events of one handler on one scope handled, by its failure policy.

    A destination with a position of its own never stores one past an event that is not handled:
    what follows a refused event is handed over when its dead letter is stored.
    """

    def deliver(self, event: ChangeEvent) -> Awaitable[BaseException | None]:
        """Hands one event to a handler of single events; returns its error, for :meth:`recover`.

        A plain function, because each event would pay for a further coroutine.
        """
        if self._held or self._outages.lasting is not None:
            return self._deliver_unheld(event)
        return self._attempt(self._call, event, event, 1)

    async def _deliver_unheld(self, event: ChangeEvent) -> BaseException | None:
        if await self._retry.queue_after_letters(event):
            return None
        self._retry.require_running()
        if self._outages.lasting is not None:
            return self._outages.lasting
        return await self._attempt(self._call, event, event, 1)

    def rest(self) -> None:
        """Nothing is left to hand over, and the stream has nothing more."""

    async def deliver_all(self, events: Sequence[ChangeEvent], handled: Handled) -> None:
        """Hands events to a handler of sequences.

        If the last attempt at a sequence fails, it is delivered once more event by event (or
        transaction by transaction), so that only the one at fault is dead-lettered.
        """
        if self._held:
            events = await self._unheld(events, handled)
            if not events:
                return
            self._retry.require_running()
        call, payload = called_with(self._calls, events)
        error = self._outages.lasting
        if error is None:
            error = await self._attempt_in_slot(call, payload, events[0], len(events))
        if error is not None:
            await self.recover(events, error, handled)
            return
        self.size.worked(len(events))
        if self._owns and call is self._call:
            self.position.stored(events)

    async def deliver_apart(self, events: Sequence[ChangeEvent], handled: Handled) -> None:
        """Hands over the events that are left after the task that delivered them was lost."""
        rest = [event for event in events if event.token not in handled.tokens]
        left = await self._unheld(rest, handled)
        error = await self._once_more(left)
        if error is not None:
            await self.recover(left, error, handled)

    async def recover(
        self, events: Sequence[ChangeEvent], error: BaseException, handled: Handled
    ) -> None:
        """Gets the events handled after ``error``, or makes dead letters of those at fault."""
        if self._is_outage(events, error):
            after_it = await self._waited_out(events, error)
            if after_it is None:
                return
            error = after_it
        # What a failed call stored is handled, and the indices of a refusal are without it.
        events = await self.position.missing(events)
        if not events:
            return
        if self.size.reduced(left := self._units(events), error):
            while left:
                self._retry.require_running()
                part, left = self.size.divided(left)
                await self.deliver_apart(part, handled)
                handled.tokens.update(event.token for event in part)
                self.size.worked(len(part))
            return
        if isinstance(error, Refused) and (reasons := error.of(len(events))):
            await self._set_refused_aside(events, reasons, handled)
            return
        spent = await self._retry.retry(lambda: self._once_more(events), error, events)
        if spent is None:
            return
        error, attempts = spent
        # An attempt may have changed the events: take fresh ones to find their keys.
        events = await self.position.missing([event.fresh() for event in events])
        alone = self._units(events)
        if len(alone) == 1:
            await self._give_up(alone[0], error, attempts, handled)
            return
        for unheld in alone:
            unit = await self._unheld(unheld, handled)
            self._retry.require_running()
            failure = await self._once_more(unit)
            if failure is None:
                handled.tokens.update(event.token for event in unit)
            elif isinstance(failure, Refused) and (reasons := failure.of(len(unit))):
                await self._set_refused_aside(unit, reasons, handled)
            else:
                await self._give_up(unit, failure, attempts + 1, handled)

    async def _set_refused_aside(
        self, events: Sequence[ChangeEvent], reasons: Mapping[int, str], handled: Handled
    ) -> None:
        """Makes dead letters of the refused events; the others are handled.

        Later events of the same keys queue after them; earlier ones are handled like the others.
        """
        if self._owns or self._retry.policy.halt:
            await self._handle_in_order(events, reasons, handled)
            return
        others, aside = divided(events, reasons)
        await self._handle(others, handled)
        await self._dead_letter_refused(aside, handled)

    async def _handle_in_order(
        self, events: Sequence[ChangeEvent], reasons: Mapping[int, str], handled: Handled
    ) -> None:
        """Handles the events before the first refused one, then it, and so on.

        So nothing after an event that halts the handler is handled, and no position is stored after
        one whose dead letter is not.
        """
        alone = self._units(events)
        for others, refused in parts(alone, reasons):
            self._retry.require_running()
            await self._handle(await self._unheld(others, handled), handled)
            await self._dead_letter_refused(refused, handled)

    async def _handle(self, events: Sequence[ChangeEvent], handled: Handled) -> None:
        error = await self._once_more(events)
        if error is not None:
            await self.recover(events, error, handled)
        handled.tokens.update(event.token for event in events)

    async def _dead_letter_refused(
        self, aside: Sequence[tuple[ChangeEvent, str]], handled: Handled
    ) -> None:
        for event, reason in aside:
            if reason or not await self._retry.queue_after_letters(event):
                await self._retry.give_up(event, EventRefused(reason), 1)
            self._note_dead_letter(event, handled)

    async def _give_up(
        self,
        events: Sequence[ChangeEvent],
        error: BaseException,
        attempts: int,
        handled: Handled,
    ) -> None:
        for event in await self.position.missing(events):
            await self._retry.give_up(event, error, attempts)
            self._note_dead_letter(event, handled)

    async def _unheld(
        self, events: Sequence[ChangeEvent], handled: Handled
    ) -> Sequence[ChangeEvent]:
        """The events whose key has no dead letter; the others are stored after such letters."""
        left = []
        for event in events:
            if await self._retry.queue_after_letters(event):
                self._note_dead_letter(event, handled)
            else:
                left.append(event)
        return left

    def _note_dead_letter(self, event: ChangeEvent, handled: Handled) -> None:
        if isinstance(self._calls, PerBatch):
            handled.tokens.add(event.token)
            handled.dead_letters.add(event.token)
