"""The type ``python``: a user's function, or an object of a user's class, as a handler."""

import inspect
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainSerializer

from tailrace.destination import CommitHandlerSettings, Handler, HandlerType, Opening
from tailrace.destination.object_handler import created, object_handler
from tailrace.destination.options import arguments
from tailrace.destination.secret import masked_secrets, plain_texts, with_secrets
from tailrace.destination.settings import Count, OpaqueMapping, Target
from tailrace.destination.target import imported_target, is_shared, require_usable
from tailrace.errors import ConfigurationError, Problem, Unavailable

BATCHES_BY_KEY = 8
"""How many batches at once `order: key` has by default: each may take a connection."""

Options = Annotated[OpaqueMapping, AfterValidator(with_secrets), PlainSerializer(masked_secrets)]


class PythonHandlerSettings(CommitHandlerSettings):
    """Calls your coroutine function, or an object of your class."""

    type: Literal["python"]
    """Selects this handler."""

    target: Target
    """The function or class, as `package.module:name`: an `async def` that takes an event or a
    sequence of events, or a class with a coroutine method `write(batch)` or `__call__`."""

    options: Options = Field(default_factory=dict)
    """The arguments of the class, by name. They are checked against its annotations. For an option
    that is `{file: PATH}`, the class gets the text that the file holds when the handler is
    opened."""

    order: Literal["stream", "key"] = "stream"
    """The order of batches. With `stream`, a scope has one call at a time, in the stream's order.
    With `key`, it has several, each with other documents: the changes of one document come in
    order, and events that are not about a document come alone. Not for a class with `begin`, nor
    with `transactions: grouped`."""

    concurrency: Count | None = None
    """The largest number of calls at once for a scope, each with other documents: of calls with one
    event (without it, `delivery.lanes`), and of batches with `order: key` (without it, 8). Lower it
    if the destination accepts fewer."""


def check_target(name: str, settings: PythonHandlerSettings) -> None:
    """Imports the target and checks it and its options, without creating an object.

    Raises :class:`ConfigurationError`.
    """
    _require_suitable(name, imported_target(name, settings.target), settings)


def python_object(opening: Opening, settings: PythonHandlerSettings) -> Any:
    """The target, or an object of it if it is a class. Raises :class:`ConfigurationError`."""
    return target_object(opening, imported_target(opening.name, settings.target), settings)


def target_object(opening: Opening, target: Any, settings: PythonHandlerSettings) -> Any:
    """As :func:`python_object`, for a target that is imported already."""
    _require_suitable(opening.name, target, settings)
    if not inspect.isclass(target):
        return target
    given = arguments(opening.name, target, _texts(opening.name, settings))
    return created(f"handlers.{opening.name}.target", target, **given)


def _handler(opening: Opening, settings: PythonHandlerSettings, target: Any) -> Handler:
    concurrency = settings.concurrency or opening.delivery.lanes
    batches = (settings.concurrency or BATCHES_BY_KEY) if settings.order == "key" else 1
    return object_handler(opening, target, settings, concurrency, batches)


def _texts(name: str, settings: PythonHandlerSettings) -> dict[str, Any]:
    try:
        return plain_texts(settings.options)
    except Unavailable as error:
        raise ConfigurationError(Problem(f"handlers.{name}.options", str(error))) from error


def _require_suitable(name: str, target: Any, settings: PythonHandlerSettings) -> None:
    takes_batches = require_usable(f"handlers.{name}.target", settings.target, target)
    if inspect.isclass(target):
        arguments(name, target, _texts(name, settings))
    elif settings.options:
        message = f"{settings.target!r} takes no options: only a class does"
        raise ConfigurationError(Problem(f"handlers.{name}.options", message))
    keys = CommitHandlerSettings.__annotations__.keys() & settings.model_fields_set
    if keys and not hasattr(target, "commit"):
        message = f"is for a class with a coroutine method commit, and {settings.target!r} has none"
        raise ConfigurationError(Problem(f"handlers.{name}.{min(keys)}", message))
    if settings.order == "key" and (why := _not_by_key(target, takes_batches=takes_batches)):
        message = f"'key' does not fit {settings.target!r}, {why}"
        raise ConfigurationError(Problem(f"handlers.{name}.order", message))


def _not_by_key(target: Any, *, takes_batches: bool) -> str:
    if not takes_batches:
        return "which gets one event a call: such calls are ordered by key without it"
    if hasattr(target, "begin"):
        return (
            "which has begin: the one position that it stores cannot cover several calls at once. "
            "Use order: stream, or remove begin"
        )
    if hasattr(target, "commit"):
        return "which has commit: it covers all earlier events. Use order: stream"
    return ""


PYTHON = HandlerType(
    PythonHandlerSettings,
    python_object,
    _handler,
    check_target,
    shared=lambda settings: is_shared(imported_target("", settings.target)),
    is_comparable=lambda settings: hasattr(imported_target("", settings.target), "comparison"),
)
