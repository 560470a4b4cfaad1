"""What a command needs to ask a daemon: where it is, its token, and the names of its scopes."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from tailrace.config.fields import Section
from tailrace.config.http import HttpSettings
from tailrace.config.sections import only, read_file, read_sections
from tailrace.config.store import AnyStore, SqliteStoreSettings


class _Sections(Section):
    http: HttpSettings = Field(default_factory=HttpSettings)

    store: AnyStore = Field(default_factory=SqliteStoreSettings)


@dataclass(frozen=True, slots=True)
class ServedSettings:
    """Where a daemon is asked, and with what token.

    ``handlers``: by scope, the names of those that get its changes, in the order of the routes.
    ``handler_names``: those of all handlers.
    """

    http: HttpSettings
    store: AnyStore
    handlers: Mapping[str, Sequence[str]]
    handler_names: Collection[str]


def load_served(
    path: str | os.PathLike[str], environ: Mapping[str, str] | None = None
) -> ServedSettings:
    """Of a file, what is needed to ask its daemon; the rest is not checked.

    Raises :class:`tailrace.errors.ConfigurationError`.
    """
    source = os.fspath(path)
    document = read_sections(read_file(source), environ, source)
    handlers, section = _handlers(document.data), document.data.get("handlers")
    names = [str(name) for name in section] if isinstance(section, dict) else []
    served = only(_Sections, document, source)
    return ServedSettings(served.http, served.store, handlers, names)


def _handlers(data: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    names = {str(scope.get("name")): dict[str, None]() for scope in _mappings(data.get("scopes"))}
    for route in _mappings(data.get("routes")):
        handlers, of_scope = route.get("handlers"), names.get(str(route.get("scope")), {})
        if isinstance(handlers, list):
            of_scope.update(dict.fromkeys(map(str, handlers)))
    return {scope: list(handlers) for scope, handlers in names.items()}


def _mappings(section: Any) -> Sequence[Mapping[str, Any]]:
    return [item for item in section if isinstance(item, dict)] if isinstance(section, list) else []
