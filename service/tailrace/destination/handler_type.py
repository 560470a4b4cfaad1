"""A row of the table of types: what makes a type of handler one that can be configured."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Generic, TypeVar, get_args

from prometheus_client import CollectorRegistry

from tailrace.config.delivery import DeliverySettings
from tailrace.config.handlers import AnyHandlerSettings
from tailrace.destination.tables import OpenTables
from tailrace.engine import Handler
from tailrace.errors import ConfigurationError, Problem
from tailrace.model import Scope

S = TypeVar("S", bound=AnyHandlerSettings)


@dataclass(frozen=True, slots=True)
class Opening:
    """What an object of a handler is opened with, besides the handler's settings.

    ``name`` is the handler's key in the configuration, and ``scope`` the one whose changes the
    object gets; if it is shared, it gets those of all that the handler ``follows``. Metrics that
    are made with ``registry`` appear in ``/metrics``. ``tables``: opens those of a lake.
    """

    name: str
    scope: Scope
    delivery: DeliverySettings
    registry: CollectorRegistry
    follows: Sequence[Scope] = ()
    tables: OpenTables | None = None


@dataclass(frozen=True, slots=True)
class ProbeContext:
    """For what a handler is probed: its scopes, and the identity of their cluster."""

    scopes: Sequence[Scope]
    cluster: str


@dataclass(frozen=True, slots=True)
class HandlerType(Generic[S]):
    """A type of handler. Its module is imported with the table: import clients in ``create``.

    ``create``: makes an object, which is entered before the first event if it is an async context,
    and ``handler`` says how the engine calls it for the opening's scope. ``check``: raises
    :class:`tailrace.errors.ConfigurationError` for what is wrong with the settings without opening
    anything. ``probe``: for ``tailrace check --connect``, tries without an open object what a start
    would do, without a trace, and returns what is possible; without it, the object is opened, and
    its method ``probe``, if it has one, is called. ``needs``: the modules that must be installed,
    and ``install`` says how. ``shared``: whether one object serves all scopes of a handler.
    ``holds``: the file that only one open handler may have. ``is_comparable``: whether its objects
    may have a ``comparison``; the object itself says whether it has one.
    """

    settings: type[S]
    create: Callable[[Opening, S], Any]
    handler: Callable[[Opening, S, Any], Handler]
    check: Callable[[str, S], None] = lambda name, settings: None
    probe: Callable[[Opening, S, ProbeContext], Awaitable[str]] | None = None
    needs: tuple[str, ...] = ()
    install: str = ""
    shared: Callable[[S], bool] = lambda settings: False
    holds: Callable[[S], str | None] = lambda settings: None
    is_comparable: Callable[[S], bool] = lambda settings: True

    @property
    def name(self) -> str:
        """The word of the key ``type``."""
        words: tuple[Any, ...] = get_args(self.settings.model_fields["type"].annotation)
        return str(words[0])

    @property
    def summary(self) -> str:
        """What it does: the first sentence of the docstring of its settings."""
        return " ".join((self.settings.__doc__ or "").split()).partition(". ")[0].rstrip(".")

    @property
    def missing(self) -> list[str]:
        """The modules that it needs and that are not installed."""
        return [module for module in self.needs if find_spec(module) is None]

    def require_installed(self, name: str, *modules: str) -> None:
        """Raises :class:`ConfigurationError` if what handler ``name`` needs is not installed.

        ``modules``: more that its settings need.
        """
        missing = self.missing + [module for module in modules if find_spec(module) is None]
        if missing:
            how = f": {self.install}" if self.install else ""
            message = f"{self.name} needs {', '.join(missing)}, not installed here{how}"
            raise ConfigurationError(Problem(f"handlers.{name}.type", message))
