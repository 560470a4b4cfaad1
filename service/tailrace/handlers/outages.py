"""The exceptions that the configuration names as outages."""

import pkgutil
from collections.abc import Sequence

from tailrace.errors import ConfigurationError, Problem, describe


def outage_classes(name: str, outages: Sequence[str]) -> tuple[type[BaseException], ...]:
    """The classes that ``handlers.NAME.outages`` names; :class:`ConfigurationError` for others."""
    found, problems = list[type[BaseException]](), list[Problem]()
    for index, each in enumerate(outages):
        path = f"handlers.{name}.outages[{index}]"
        try:
            kind = pkgutil.resolve_name(each)
        except Exception as error:  # noqa: BLE001 - a module may raise anything
            problems.append(Problem(path, f"{each!r} cannot be imported: {describe(error)}"))
            continue
        if isinstance(kind, type) and issubclass(kind, Exception):
            found.append(kind)
        else:
            problems.append(Problem(path, f"{each!r} is not an exception class"))
    if problems:
        raise ConfigurationError(*problems)
    return tuple(found)
