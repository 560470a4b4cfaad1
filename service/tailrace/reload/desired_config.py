"""A configuration as it is now, with what is opened for it. Reading it blocks, also for files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tailrace.assembly import followed_by
from tailrace.config.loading import load
from tailrace.config.settings import Settings
from tailrace.errors import ConfigurationError, Problem, Unavailable
from tailrace.handlers import check_handlers
from tailrace.handlers.pool import HandlerPlan
from tailrace.handlers.types import handler_models
from tailrace.reload.clients import ClientPlan


@dataclass(frozen=True, slots=True)
class DesiredConfig:
    """The settings, and with what handlers and the client of the source are opened."""

    settings: Settings
    handlers: Mapping[str, HandlerPlan]
    client: ClientPlan

    @classmethod
    def of(cls, settings: Settings) -> "DesiredConfig":
        """Reads the files of secrets. Raises :class:`ConfigurationError`."""
        client = ClientPlan.of(settings.mongodb)
        follows = followed_by(settings)
        handlers, problems = dict[str, HandlerPlan](), list[Problem]()
        for name, handler_settings in settings.handlers.items():
            try:
                handlers[name] = HandlerPlan.of(name, handler_settings, follows.get(name, ()))
            except Unavailable as error:
                problems.append(Problem(f"handlers.{name}", str(error)))
        if problems:
            raise ConfigurationError(*problems)
        return cls(settings, handlers, client)

    @classmethod
    def read(cls, file: str, begun: Callable[[str], None] = lambda text: None) -> "DesiredConfig":
        """What the file says, checked. Raises :class:`ConfigurationError`.

        ``begun`` is called with what may take long, before it.
        """
        begun("it was still being read")
        settings = load(file, handler_models)

        def checking(name: str) -> None:
            target = getattr(settings.handlers[name], "target", None)
            what = f"the target {target!r}" if target else "a module that it needs"
            begun(f"handlers.{name}: {what} was still being imported")

        if problems := check_handlers(
            settings.handlers, settings.scopes, settings.routes, checking
        ):
            raise ConfigurationError(*problems)
        begun("it was still being read")
        return cls.of(settings)
