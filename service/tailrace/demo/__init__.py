"""All of Tailrace on one machine: server, workload, daemon, tables, and the verification.

With a destination, its server runs instead of the pipeline.
"""

from pathlib import Path

from tailrace.errors import ConfigurationError, Problem

__all__ = ["demonstrate"]


async def demonstrate(
    events: int, directory: Path, uri: str | None = None, to: str | None = None
) -> int:
    """Calls :func:`tailrace.demo.demonstration.demonstrate`; an error names a missing extra."""
    try:
        from tailrace.demo.demonstration import demonstrate as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "tailrace":
            raise
        message = f"the demo needs the extra: pip install '.[demo]' in a checkout ({error})"
        raise ConfigurationError(Problem("", message)) from error
    return await run(events, directory, uri, to)
