"""Types of handlers of other packages: entry points of the group ``tailrace.handlers``."""

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tailrace.destination.handler_type import HandlerType
from tailrace.errors import describe

GROUP = "tailrace.handlers"


def packaged_types() -> dict[str, list[EntryPoint]]:
    """The entry points by the name of the type; nothing is imported."""
    found: dict[str, list[EntryPoint]] = {}
    for each in entry_points(group=GROUP):
        found.setdefault(each.name, []).append(each)
    return found


def package_of(entry: EntryPoint) -> str:
    """The package with its version, as in ``tailrace-shelf 1.0``."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value


def load(entries: list[EntryPoint]) -> HandlerType[Any]:
    """The row to which the entry points of one name lead.

    Raises ``ValueError`` with a sentence that names the package and the cause.
    """
    entry, *others = entries
    if others:
        packages = " and ".join(package_of(one) for one in entries)
        raise ValueError(f"{packages} both add the type {entry.name!r}: uninstall one of them")
    failed = f"the type {entry.name!r} of the package {package_of(entry)} cannot be loaded"
    try:
        row = entry.load()
    except BaseException as error:  # a module may call sys.exit() as well
        raise ValueError(f"{failed}: {describe(error)}") from error
    if not isinstance(row, HandlerType):
        raise ValueError(f"{failed}: {entry.value} is not made by tailrace.destination_type")
    if row.name != entry.name:
        raise ValueError(
            f"{failed}: its settings are those of type {row.name!r}. Give the entry point that name"
        )
    return row
