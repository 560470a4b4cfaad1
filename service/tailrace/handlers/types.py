"""The table of types of handlers: those of Tailrace, and those that other packages add.

To add a type here: write its module and put its row into the table. Another package adds a row by
an entry point of the group ``tailrace.handlers``, which is loaded only if it is used or listed.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.config.handlers import AnyHandlerSettings
from tailrace.destination.handler_type import HandlerType
from tailrace.destinations.http import HTTP
from tailrace.destinations.jsonl import JSONL
from tailrace.destinations.kafka import KAFKA
from tailrace.destinations.log import LOG
from tailrace.destinations.mongodb import MONGODB
from tailrace.destinations.nats import NATS
from tailrace.destinations.parquet import PARQUET
from tailrace.destinations.postgresql import POSTGRESQL
from tailrace.destinations.python import PYTHON
from tailrace.destinations.redis import REDIS
from tailrace.handlers.packages import load, package_of, packaged_types
from tailrace.version import __version__

BUILT_IN: Mapping[str, HandlerType[Any]] = {
    each.name: each
    for each in (LOG, JSONL, PARQUET, POSTGRESQL, HTTP, KAFKA, NATS, MONGODB, REDIS, PYTHON)
}


def type_of(settings: AnyHandlerSettings) -> HandlerType[Any]:
    """The row of a handler's settings."""
    name = settings.type
    return BUILT_IN[name] if name in BUILT_IN else load(packaged_types()[name])


def handler_models(words: Collection[str]) -> Mapping[str, type[AnyHandlerSettings] | str]:
    """The settings of each type, as :func:`tailrace.config.loading.load` wants them.

    Of other packages' types, those that ``words`` name; all, if a word is none that is known.
    """
    models: dict[str, type[AnyHandlerSettings] | str] = {
        name: kind.settings for name, kind in BUILT_IN.items()
    }
    if others := set(words) - models.keys():
        packaged = packaged_types()
        for name in others if others <= packaged.keys() else packaged:
            try:
                models.setdefault(name, load(packaged[name]).settings)
            except ValueError as error:
                if name in others:
                    models[name] = str(error)
    return models


@dataclass(frozen=True, slots=True)
class ListedType:
    """A type as ``tailrace handlers`` lists it. ``broken``: why it cannot be used, or empty."""

    name: str
    package: str
    summary: str = ""
    needs: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    install: str = ""
    broken: str = ""


def listed_types() -> Iterator[ListedType]:
    """Every type, first those of Tailrace."""
    for kind in BUILT_IN.values():
        yield _listed(kind, f"tailrace {__version__}")
    for name, entries in sorted(packaged_types().items()):
        package = ", ".join(map(package_of, entries))
        try:
            if name in BUILT_IN:
                raise ValueError(
                    f"{package} adds a type {name!r}, which Tailrace has itself: it is not used"
                )
            yield _listed(load(entries), package)
        except ValueError as error:
            yield ListedType(name, package, broken=str(error))


def _listed(kind: HandlerType[Any], package: str) -> ListedType:
    missing = tuple(kind.missing)
    return ListedType(kind.name, package, kind.summary, kind.needs, missing, kind.install)


def installed_models() -> Collection[type[AnyHandlerSettings]]:
    """The settings of every type that can be loaded."""
    models = handler_models(packaged_types()).values()
    return [model for model in models if not isinstance(model, str)]
