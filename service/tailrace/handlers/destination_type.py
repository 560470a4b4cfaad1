"""Makes a type of handler of a class, for packages that add one."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tailrace.config.handlers import BatchHandlerSettings
from tailrace.engine import Handler
from tailrace.handlers.handler_type import HandlerType, Opening
from tailrace.handlers.object_handler import created, object_handler
from tailrace.handlers.target import require_usable

S = TypeVar("S", bound=BatchHandlerSettings)


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

    @asynccontextmanager
    async def opened(opening: Opening, given: S) -> AsyncIterator[Handler]:
        target = created(f"handlers.{opening.name}", kind, given)
        async with object_handler(opening, target, given, opening.delivery.lanes) as handler:
            yield handler

    row = HandlerType(settings, opened, check, needs=needs, install=install)
    return row
