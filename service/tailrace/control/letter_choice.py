"""Which dead letters a request is about: by scope, handler, document, error or ids."""

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tailrace.control.outcome import ActionRefused
from tailrace.engine.ports import DeadLetterStore
from tailrace.event.key import Key
from tailrace.model.dead_letter import LetterHead, LetterQueue

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class LetterChoice:
    """The dead letters that are meant; all, unless something is said."""

    scope: str | None = None
    handler: str | None = None
    key: Key | None = None
    error: str | None = None
    ids: frozenset[str] = frozenset()

    @property
    def by_name(self) -> bool:
        """Whether it says no more than scope and handler."""
        return self.key is None and self.error is None and not self.ids

    def has(self, head: LetterHead) -> bool:
        """Whether this dead letter is meant."""
        return (
            self.scope in (None, head.scope)
            and self.handler in (None, head.handler)
            and (self.key is None or self.key.is_of(head.key))
            and (self.error is None or self.error in head.error)
            and (not self.ids or head.id in self.ids)
        )

    async def heads(
        self, store: DeadLetterStore, after: str = "", page: int = _PAGE
    ) -> AsyncIterator[LetterHead]:
        """The dead letters that are meant, in the order of arrival, without their events.

        Raises :class:`ActionRefused` for an ``after`` that is no arrival.
        """
        try:
            async for head in self._all(store, after, page if self.by_name else _PAGE):
                if self.has(head):
                    yield head
        except ValueError as error:
            message = "it is not the 'next' of an answer: leave it out for the first page"
            raise ActionRefused(400, f"after: {message}") from error

    async def count(self, store: DeadLetterStore) -> int:
        """How many are meant."""
        if self.by_name:
            counts = await store.count()
            return sum(
                number
                for (scope, handler), number in counts.items()
                if self.scope in (None, scope) and self.handler in (None, handler)
            )
        number = 0
        async for _ in self.heads(store):
            number += 1
        return number

    async def queues(self, store: DeadLetterStore, after: "DeadLetterCursor") -> "ChosenQueues":
        """The queues with dead letters that are meant, but those that a former answer is about."""
        chosen = ChosenQueues()
        async for head in self._all(store, "", _PAGE):
            chosen.sizes[head.queue] += 1
            if head.id in self.ids:
                chosen.ids.add(head.id)
            if self.has(head) or head.identity == after.rest:
                chosen.first.setdefault(head.queue, head)
                if head.identity == after.rest:
                    chosen.rest = head.queue
        chosen.first = {
            name: head
            for name, head in chosen.first.items()
            if head.arrival > after.arrival or name == chosen.rest
        }
        return chosen

    async def _all(
        self, store: DeadLetterStore, after: str, page: int
    ) -> AsyncIterator[LetterHead]:
        while heads := await store.heads(self.scope, self.handler, after=after, limit=page):
            for head in heads:
                yield head
            after = heads[-1].arrival


@dataclass(slots=True)
class ChosenQueues:
    """By queue, the first dead letter that is meant, in the order of arrival; and how many wait.

    ``rest``: the queue that a former answer has left in the middle.
    """

    first: dict[LetterQueue, LetterHead] = field(default_factory=dict)
    sizes: Counter[LetterQueue] = field(default_factory=Counter)
    rest: LetterQueue | None = None
    ids: set[str] = field(default_factory=set)
    """Those that are meant and wait."""


@dataclass(frozen=True, slots=True)
class DeadLetterCursor:
    """Up to where a request in steps has come: the arrival of the first letter of its last queue,
    and the letter at which it left that queue. As text, ``arrival~scope/handler/id``."""

    arrival: str = ""
    rest: tuple[str, ...] | None = None

    @classmethod
    def of(cls, text: str) -> "DeadLetterCursor":
        """As :meth:`__str__` wrote it; any text is one."""
        arrival, _, rest = text.partition("~")
        return cls(arrival, tuple(rest.split("/")) if rest else None)

    def __str__(self) -> str:
        return f"{self.arrival}~{'/'.join(self.rest)}" if self.rest else self.arrival
