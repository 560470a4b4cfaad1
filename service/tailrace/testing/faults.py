"""Faults that a test plans, and the calls of a handler in which they happen."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from tailrace.engine import Commit, Handler, PerEvent, RunIdentity
from tailrace.errors import TemporaryError, Unavailable
from tailrace.event import ChangeEvent

When: TypeAlias = Literal["before", "inside", "after"]
"""Before the handler is called, at an ``await`` inside its call, or after it returned."""
Method: TypeAlias = Literal["write", "on_ddl", "begin", "commit"]
"""``write`` is every call with events, also of a function."""

Call: TypeAlias = Callable[[Any, RunIdentity], Awaitable[Any]]


@dataclass(slots=True, eq=False)
class Fault:
    """What happens in the next call of ``method``; at the ``step``-th ``await`` if ``inside``.

    ``happen`` raises the error, or returns when the call may go on. A call that awaits less often
    is not hit.
    """

    happen: Callable[[], Awaitable[None]]
    when: When = "before"
    step: int = 1
    method: Method = "write"
    hit: bool = False
    """Whether it has happened."""


@dataclass(slots=True)
class Faults:
    """The planned faults, in order: each call takes the first one of its method."""

    planned: deque[Fault] = field(default_factory=deque)
    delivered: list[ChangeEvent] = field(default_factory=list)
    """Every event with which the handler was called, with repetitions."""

    def around(self, handler: Handler) -> Handler:
        """The handler, with these faults in its calls."""
        calls, position = handler.calls, handler.position
        if isinstance(calls, PerEvent):
            calls = replace(calls, call=self._around(calls.call, "write"))
        else:
            on_ddl = calls.on_ddl and self._around(calls.on_ddl, "on_ddl")
            # The payload may be bytes, of which nobody could tell which events they are.
            payload = calls.payload
            calls = replace(
                calls,
                call=self._around(calls.call, "write", payload),
                payload=list,
                on_ddl=on_ddl,
            )
        if position is not None:
            load = position.load

            async def begin(_: None, identity: RunIdentity) -> Any:
                return await load(identity)

            begins = self._around(begin, "begin")
            position = replace(position, load=lambda identity: begins(None, identity))
        return replace(handler, calls=calls, position=position, commit=self._committing(handler))

    def _committing(self, handler: Handler) -> Commit | None:
        if handler.commit is None:
            return None
        commit = handler.commit.call

        async def call(_: None, identity: RunIdentity) -> Any:
            return await commit(identity)

        commits = self._around(call, "commit")
        return replace(handler.commit, call=lambda identity: commits(None, identity))

    def _around(
        self,
        call: Call,
        method: Method,
        payload: Callable[[Sequence[ChangeEvent]], Any] | None = None,
    ) -> Call:
        async def called(events: Any, identity: RunIdentity) -> Any:
            fault = self._next(method)
            if fault is not None and fault.when == "before":
                fault.hit = True
                await fault.happen()
            if isinstance(events, ChangeEvent):
                self.delivered.append(events.fresh())
            elif isinstance(events, list):
                self.delivered += [event.fresh() for event in events]
            inside = fault if fault is not None and fault.when == "inside" else None
            with _hurried():
                answer = call(events if payload is None else payload(events), identity)
                result = await (answer if inside is None else _Steps(answer, inside))
            if fault is not None and fault.when == "after":
                fault.hit = True
                await fault.happen()
            return result

        return called

    def _next(self, method: Method) -> Fault | None:
        fault = next((each for each in self.planned if each.method == method), None)
        if fault is not None:
            self.planned.remove(fault)
        return fault


@contextmanager
def _hurried() -> Iterator[None]:
    """Ignores how long a handler wants to wait until the next attempt."""
    try:
        yield
    except Unavailable as error:
        error.retry_after = None
        raise
    except TemporaryError as error:
        error.delay = None
        raise


@dataclass(slots=True)
class _Steps:
    """Awaits a call; at one of its own ``await``s, the fault happens."""

    call: Awaitable[Any]
    fault: Fault

    def __await__(self) -> Generator[Any, Any, Any]:
        steps, number = self.call.__await__(), 0
        send: Callable[[Any], Any] = steps.send
        value: Any = None
        while True:
            try:
                pending = send(value)
            except StopIteration as ended:
                return ended.value
            number += 1
            try:
                if number == self.fault.step:
                    self.fault.hit = True
                    yield from self.fault.happen().__await__()
                value, send = (yield pending), steps.send
            except BaseException as error:  # noqa: BLE001 - the call gets it, as from its await
                value, send = error, steps.throw
