"""A counter of a type of handlers, which all its handlers share."""

from prometheus_client import CollectorRegistry, Counter


def shared_counter(registry: CollectorRegistry, name: str, meaning: str, *labels: str) -> Counter:
    """The counter ``name``, made by the first handler that asks for it in this registry."""
    found = registry._names_to_collectors.get(name)  # there is no public lookup
    if isinstance(found, Counter):
        return found
    return Counter(name.removesuffix("_total"), meaning, labels, registry=registry)
