"""Dead letters of scopes and handlers that are not configured any more."""

from collections.abc import Collection, Mapping


def removed_letters(
    counts: Mapping[tuple[str, str], int], known: Mapping[str, Collection[str]]
) -> list[str]:
    """A line for each scope and handler with dead letters in ``counts`` that is not ``known``."""
    return [
        f"scope {scope}: {letters} dead letters wait for handler {handler!r}, which is not "
        f"configured for it: add it again and replay them, or 'tailrace dead-letters discard "
        f"--scope {scope} --handler {handler}'"
        for (scope, handler), letters in sorted(counts.items())
        if letters and handler not in known.get(scope, ())
    ]
