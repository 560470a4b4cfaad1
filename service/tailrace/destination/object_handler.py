"""A function, or an object with ``write`` or ``__call__``, as a handler of one scope."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

from tailrace.destination.function import function_calls
from tailrace.destination.handler_type import Opening
from tailrace.destination.object_calls import ObjectCalls
from tailrace.destination.settings import BatchHandlerSettings, CommitHandlerSettings
from tailrace.engine import Handler, OwnPosition, PerBatch, RunIdentity
from tailrace.errors import ConfigurationError, Problem, Unavailable, describe


def created(path: str, kind: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
    """An object of a class. Raises :class:`ConfigurationError` with this path."""
    try:
        return kind(*given, **named)
    except ConfigurationError:
        raise  # of a destination of our own
    except Exception as error:
        message = f"{getattr(kind, '__name__', kind)} cannot be created: {describe(error)}"
        raise ConfigurationError(Problem(path, message)) from error


def object_handler(
    opening: Opening,
    target: Any,
    settings: BatchHandlerSettings,
    concurrency: int,
    batches: int = 1,
) -> Handler:
    """The object as a handler.

    ``concurrency``: how many calls with one event may run at once, and ``batches`` how many with
    several. An object with ``commit`` needs :class:`CommitHandlerSettings`.
    """
    bounds: dict[str, Any] = {
        "events": settings.batch_size,
        "bytes": settings.batch_bytes,
        "linger_seconds": settings.linger_seconds,
        "concurrency": batches,
    }
    if hasattr(target, "write"):
        calls = ObjectCalls(opening.name, target, opening.registry)
        commit = None
        if isinstance(settings, CommitHandlerSettings):
            events, size = settings.commit_events, settings.commit_bytes
            commit = calls.commit(events=events, bytes=size, seconds=settings.commit_seconds)
        return Handler(
            opening.name,
            calls.calls(**bounds),
            calls.position,
            commit,
            comparison=calls.comparison,
            from_beginning=calls.from_beginning,
            columns=getattr(target, "automatic_columns", None),
        )
    batch = partial(PerBatch, **bounds)
    return Handler(opening.name, function_calls(target, concurrency=concurrency, batch=batch))


def forwarded(shape: Handler, opened: Callable[[], Handler]) -> Handler:
    """A handler of this shape whose calls go to the one that is open, as ``opened`` says.

    That raises :class:`tailrace.errors.Unavailable` while there is none, and so do the calls.
    """

    def to(path: str) -> Any:
        call = attrgetter(path)
        return (lambda *arguments: call(opened())(*arguments)) if call(shape) is not None else None

    async def ready(identity: RunIdentity) -> None:
        opened()

    def columns() -> Mapping[str, Sequence[str]]:
        with suppress(Unavailable):
            if (made := opened().columns) is not None:
                return made()
        return {}

    calls, position, commit = shape.calls, shape.position, shape.commit
    # Not a coroutine of its own, which every event would pay for.
    calls = replace(
        calls, call=lambda arguments, identity: opened().calls.call(arguments, identity)
    )
    if isinstance(calls, PerBatch):
        calls = replace(calls, on_ddl=to("calls.on_ddl"))
    position = position and OwnPosition(to("position.load"), to("position.skipped"))
    commit = commit and replace(commit, call=to("commit.call"), held=to("commit.held"))
    return replace(
        shape,
        calls=calls,
        position=position,
        commit=commit,
        ready=ready,
        comparison=to("comparison"),
        columns=columns,
    )
