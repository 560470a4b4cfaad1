"""What happens when a handler fails: its own settings, and for keys left out, ``delivery``."""

import pkgutil

from tailrace.config.delivery import DeliverySettings
from tailrace.config.handlers import AnyHandlerSettings
from tailrace.destination.settings import HandlerSettings
from tailrace.engine import Handler
from tailrace.errors import ConfigurationError, Problem, describe
from tailrace.model.failure_policy import Backoff, FailurePolicy


def failure_policy(
    name: str, settings: AnyHandlerSettings, delivery: DeliverySettings, handler: Handler
) -> FailurePolicy:
    """The policy of an opened handler; that of its opener, if its type has no such settings.

    A handler with its own position halts unless its own settings say otherwise: a dead letter could
    not be replayed to it.
    """
    if not isinstance(settings, HandlerSettings):
        return handler.failure
    retry = settings.retry or delivery.retry
    letters = delivery.dead_letters
    otherwise = delivery.on_failure if handler.position is None else "halt"
    return FailurePolicy(
        attempts=retry.attempts,
        backoff=Backoff(retry.first_seconds, retry.cap_seconds),
        timeout_seconds=settings.attempt_seconds,
        halt=(settings.on_failure or otherwise) == "halt",
        max_consecutive=letters.max_consecutive,
        max_ratio=letters.max_ratio,
        ratio_window=letters.ratio_window,
        outages=outage_classes(name, settings),
    )


def outage_classes(name: str, settings: AnyHandlerSettings) -> tuple[type[BaseException], ...]:
    """The classes that ``handlers.NAME.outages`` names; :class:`ConfigurationError` for others."""
    outages = settings.outages if isinstance(settings, HandlerSettings) else ()
    classes, problems = list[type[BaseException]](), list[Problem]()
    for index, dotted in enumerate(outages):
        path = f"handlers.{name}.outages[{index}]"
        try:
            kind = pkgutil.resolve_name(dotted)
        except Exception as error:  # noqa: BLE001 - a module may raise anything
            problems.append(Problem(path, f"{dotted!r} cannot be imported: {describe(error)}"))
            continue
        if isinstance(kind, type) and issubclass(kind, Exception):
            classes.append(kind)
        else:
            problems.append(Problem(path, f"{dotted!r} is not an exception class"))
    if problems:
        raise ConfigurationError(*problems)
    return tuple(classes)
