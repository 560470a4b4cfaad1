"""The type ``http``. aiohttp is an extra, and imported when a handler is opened."""

from typing import TYPE_CHECKING

from tailrace.errors import ConfigurationError, Problem, how_to_install
from tailrace.handlers.destination_type import own_destination_type
from tailrace.handlers.handler_type import Opening
from tailrace.handlers.http.settings import WAITING, HttpHandlerSettings
from tailrace.handlers.http.tls import tls_context

if TYPE_CHECKING:
    from tailrace.handlers.http.batch_sender import BatchSender
    from tailrace.handlers.http.senders import EventSender


def _create(opening: Opening, settings: HttpHandlerSettings) -> "EventSender | BatchSender":
    from tailrace.handlers.http.batch_sender import BatchSender
    from tailrace.handlers.http.senders import EventSender

    return (EventSender if settings.batch_size == 1 else BatchSender)(opening, settings)


def _check(name: str, settings: HttpHandlerSettings) -> None:
    try:
        tls_context(settings)
    except ValueError as error:
        key, _, message = str(error).partition(": ")
        raise ConfigurationError(Problem(f"handlers.{name}.{key.split()[0]}", message)) from None


HTTP = own_destination_type(
    HttpHandlerSettings,
    _create,
    _check,
    needs=("aiohttp",),
    install=how_to_install("http"),
    at_once=lambda settings: settings.at_once + (WAITING if settings.batch_size == 1 else 0),
)
