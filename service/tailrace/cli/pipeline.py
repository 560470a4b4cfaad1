"""``tailrace pipeline``: the Spark job."""

from __future__ import annotations

import argparse
import sys

from tailrace.errors import ConfigurationError, Problem


def run(options: argparse.Namespace) -> int:
    """Exit code 2 where the extra ``pipeline`` is not installed."""
    try:
        from tailrace.pipeline import entry
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("tailrace", "bson"):
            raise
        raise ConfigurationError(
            Problem("tailrace pipeline", f"needs {error.name}: pip install 'tailrace[pipeline]'")
        ) from None
    from tailrace.observe import logs

    logs.configure("info", "console" if sys.stderr.isatty() else "json")
    return entry.run(options)
