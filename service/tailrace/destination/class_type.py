"""Makes a type of handler of a class with the methods of a destination."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from tailrace.destination.handler_type import HandlerType, Opening
from tailrace.destination.object_handler import created, object_handler
from tailrace.destination.settings import BatchHandlerSettings, CommitHandlerSettings
from tailrace.destination.target import is_shared, require_usable
from tailrace.engine import Handler
from tailrace.errors import ConfigurationError, Problem

S = TypeVar("S", bound=BatchHandlerSettings)


def destination_type(
    settings: type[S],
    create: Callable[[Opening, S], Any],
    check: Callable[[str, S], None] = lambda name, settings: None,
    *,
    needs: tuple[str, ...] = (),
    install: str = "",
    concurrency: Callable[[S], int] | None = None,
    is_comparable: Callable[[S], bool] = lambda settings: True,
) -> HandlerType[S]:
    """The type whose objects ``create`` makes, each for a scope, of what it is opened with.

    ``create`` is a class with the methods of a target of ``type: python``, or a function that
    imports such a class, and its client, and returns an object. ``settings`` derives from
    :class:`BatchHandlerSettings`, and its ``type`` is one literal word, the name of the entry
    point. ``check`` gets the handler's name, and raises
    :class:`tailrace.errors.ConfigurationError` for what is wrong with settings that are valid one
    by one. ``needs``: the modules that must be installed; ``install``: how to install them.
    ``concurrency``: how many calls of a scope may run at once, each about other documents; without
    it one ``write``, or as many ``__call__`` as ``delivery.lanes``. ``is_comparable``: whether an
    object with these settings may have a ``comparison``.
    """

    def require_suitable(name: str, word: str, target: Any, settings: S) -> None:
        path = f"handlers.{name}.type"
        require_usable(path, word, target)
        if hasattr(target, "commit") and not isinstance(settings, CommitHandlerSettings):
            message = f"{word!r} has commit: let its settings derive from CommitHandlerSettings"
            raise ConfigurationError(Problem(path, message))
        several = concurrency is not None and concurrency(settings) > 1
        if several and (hasattr(target, "commit") or hasattr(target, "begin")):
            message = f"{word!r} has begin or commit, which cannot cover several calls at once"
            raise ConfigurationError(Problem(path, message))

    def checked(name: str, settings: S) -> None:
        row.require_installed(name)
        if inspect.isclass(create):
            require_suitable(name, create.__name__, create, settings)
        check(name, settings)

    def made(opening: Opening, settings: S) -> Any:
        target = created(f"handlers.{opening.name}", create, opening, settings)
        require_suitable(opening.name, type(target).__name__, target, settings)
        return target

    def handler(opening: Opening, settings: S, target: Any) -> Handler:
        calls = concurrency(settings) if concurrency is not None else None
        return object_handler(
            opening, target, settings, calls or opening.delivery.lanes, batches=calls or 1
        )

    def shared(settings: S) -> bool:
        return inspect.isclass(create) and is_shared(create)

    def comparable(settings: S) -> bool:
        return is_comparable(settings) and (
            not inspect.isclass(create) or hasattr(create, "comparison")
        )

    row = HandlerType(
        settings,
        made,
        handler,
        checked,
        needs=needs,
        install=install,
        shared=shared,
        is_comparable=comparable,
    )
    return row
