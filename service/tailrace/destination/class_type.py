"""Makes a type of handler of a class with the methods of a destination."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from tailrace.destination.handler_type import HandlerType, Opening, Trial
from tailrace.destination.object_handler import created, object_handler
from tailrace.destination.settings import BatchHandlerSettings
from tailrace.destination.target import is_shared, require_usable
from tailrace.engine import Handler

S = TypeVar("S", bound=BatchHandlerSettings)


class OwnDestination(Protocol):
    """A destination of Tailrace's own: an object with ``write``, which can also be tried."""

    async def attempt(self, trial: Trial) -> str:
        """Tries what ``run`` would do there, and leaves no trace; returns what is possible.

        Called on the entered object. Raises :class:`tailrace.errors.ConfigurationError` for what
        the user must change, and what says that the destination is down.
        """


def own_destination_type(
    settings: type[S],
    create: Callable[[Opening, S], OwnDestination],
    check: Callable[[str, S], None] = lambda name, settings: None,
    *,
    needs: tuple[str, ...],
    install: str,
    at_once: Callable[[S], int] = lambda settings: 1,
) -> HandlerType[S]:
    """The type of a destination of Tailrace's own. ``create`` imports its module and its client.

    The object may have ``__call__(event)`` instead of ``write``. ``at_once``: how many calls of a
    scope may run at once, each about other documents.
    """

    def checked(name: str, given: S) -> None:
        row.require_installed(name)
        check(name, given)

    def made(opening: Opening, given: S) -> Any:
        return created(f"handlers.{opening.name}", create, opening, given)

    def handler(opening: Opening, given: S, target: Any) -> Handler:
        return object_handler(opening, target, given, at_once(given), at_once(given))

    row = HandlerType(
        settings,
        made,
        handler,
        checked,
        tried=lambda given, target, trial: target.attempt(trial),
        needs=needs,
        install=install,
    )
    return row


def destination_type(
    settings: type[S], kind: Callable[[S], Any], *, needs: tuple[str, ...] = (), install: str = ""
) -> HandlerType[S]:
    """The type whose handlers are objects of the class ``kind``, each made with its settings.

    The class has the methods of a target of ``type: python``. ``settings`` derives from
    :class:`tailrace.BatchHandlerSettings`, and its ``type`` is one literal word, the name of the
    entry point. ``needs``: the modules that must be installed; ``install``: how to install them.
    """

    def check(name: str, given: S) -> None:
        row.require_installed(name)
        require_usable(f"handlers.{name}.type", getattr(kind, "__name__", str(kind)), kind)

    def create(opening: Opening, given: S) -> Any:
        return created(f"handlers.{opening.name}", kind, given)

    def handler(opening: Opening, given: S, target: Any) -> Handler:
        return object_handler(opening, target, given, opening.delivery.lanes)

    def shared(given: S) -> bool:
        return is_shared(kind)

    row = HandlerType(settings, create, handler, check, needs=needs, install=install, shared=shared)
    return row
