"""Asks several handlers something at once, so that one that does not answer holds no other."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio
import structlog

from tailrace.engine.course import Course
from tailrace.engine.handle.isolation import must_finish
from tailrace.errors import CheckpointFenced, DeliveryInterrupted, TailraceError

T = TypeVar("T")

PATIENCE_SECONDS = 3.0
"""How long handlers that have answered wait for the others, before they go on without them."""


@dataclass(slots=True, eq=False)
class _Question(Generic[T]):
    """One handler's. It is asked in a task of the scope, as the call may ignore its cancellation.

    ``ended``, ``failure`` and ``invalidated`` are those of :class:`tailrace.engine.course.Former`.
    """

    name: str
    call: Callable[[], Awaitable[T]]
    answers: list[T] = field(default_factory=list)
    failure: Exception | None = None
    invalidated: bool = False
    ended: anyio.Event = field(default_factory=anyio.Event)
    life: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    async def ask(self, course: Course, waiting: anyio.CancelScope) -> None:
        """Asks until the answer, the scope's stop, or the end of its life."""
        try:
            with course.scope.stop.calling(self.life.cancel), self.life:
                self.answers.append(await must_finish(self.call, f"the question to {self.name}"))
        except Exception as error:  # noqa: BLE001 - whoever asked raises it
            self.failure = error
        finally:
            self.ended.set()
            if course.can_detach:
                most = anyio.current_time() + PATIENCE_SECONDS
                waiting.deadline = min(waiting.deadline, most)


async def ask_all(course: Course, calls: Mapping[str, Callable[[], Awaitable[T]]]) -> dict[str, T]:
    """The answers of those handlers of a course that go on in it.

    One that does not answer as the others do, or fails, leaves for a course of its own if others
    stay; else this waits for it, or raises its error.
    """
    questions = [_Question(name, call) for name, call in calls.items()]
    try:
        with anyio.CancelScope() as waiting:
            for question in questions:
                name = f"question to {question.name}"
                course.scope.tasks.start_soon(question.ask, course, waiting, name=name)
            for question in questions:
                await question.ended.wait()
        silent = [question for question in questions if not question.ended.is_set()]
        answered = _answers(course, [question for question in questions if question not in silent])
        if silent and not answered:
            last = silent.pop()
            for question in silent:
                _leave(course, question)
            await last.ended.wait()  # it holds no other
            return _answers(course, [last])
        for question in silent:
            _leave(course, question)
        return answered
    finally:
        for question in questions:
            question.life.cancel()


def _answers(course: Course, questions: list[_Question[T]]) -> dict[str, T]:
    for each in questions:
        if each.failure is None:
            continue
        decides = isinstance(each.failure, CheckpointFenced | DeliveryInterrupted)
        if decides or not isinstance(each.failure, TailraceError) or not course.can_detach:
            raise each.failure
        course.detach(each.name, each.failure)
    return {each.name: each.answers[0] for each in questions if each.answers}


def _leave(course: Course, question: _Question[T]) -> None:
    structlog.get_logger().warning(
        "subscription.detached",
        scope=course.scope.plan.scope.name,
        handler=question.name,
        reason="its destination does not answer, and the others begin without it",
    )
    course.detach(question.name, None, question)
