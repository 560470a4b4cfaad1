"""The type ``http``. aiohttp is an extra, and imported when a handler is opened."""

from typing import TYPE_CHECKING

from tailrace.destination import Opening, destination_type
from tailrace.destinations.http.settings import WAITING, HttpHandlerSettings
from tailrace.destinations.http.tls import tls_context
from tailrace.errors import ConfigurationError, Problem, how_to_install

if TYPE_CHECKING:
    from tailrace.destinations.http.batch_sender import BatchSender
    from tailrace.destinations.http.senders import EventSender


def _create(opening: Opening, settings: HttpHandlerSettings) -> "EventSender | BatchSender":
    from tailrace.destinations.http.batch_sender import BatchSender
    from tailrace.destinations.http.senders import EventSender

    return (EventSender if settings.batch_size == 1 else BatchSender)(opening, settings)


def _check(name: str, settings: HttpHandlerSettings) -> None:
    try:
        tls_context(settings)
    except ValueError as error:
        key, _, message = str(error).partition(": ")
        raise ConfigurationError(Problem(f"handlers.{name}.{key.split()[0]}", message)) from None


HTTP = destination_type(
    HttpHandlerSettings,
    _create,
    _check,
    needs=("aiohttp",),
    install=how_to_install("http"),
    concurrency=lambda settings: settings.at_once + (WAITING if settings.batch_size == 1 else 0),
    is_comparable=lambda settings: False,
)
