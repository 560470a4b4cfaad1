"""Tries the start of each handler, and leaves nothing behind."""

from collections.abc import Sequence

from anyio import to_thread
from prometheus_client import CollectorRegistry

from tailrace.config import handlers as config
from tailrace.handlers import require_extra
from tailrace.handlers.jsonl import try_line_file
from tailrace.handlers.python import python_handler


async def try_handler(
    name: str, settings: config.HandlerSettings, scopes: Sequence[str], cluster: str
) -> str:
    """Starts a handler of these scopes as ``run`` would, and ends it. Returns what is possible.

    An object of a user's class is created, entered and left. Raises
    :class:`tailrace.errors.TailraceError`.
    """
    match settings:
        case config.JsonlHandlerSettings():
            return await to_thread.run_sync(try_line_file, name, settings)
        case config.ParquetHandlerSettings():
            require_extra(name, settings)
            from tailrace.handlers.parquet.trial import try_lake

            return await to_thread.run_sync(try_lake, name, settings, scopes, cluster)
        case config.PythonHandlerSettings():
            async with python_handler(name, settings, lanes=1, registry=CollectorRegistry()):
                return f"{settings.target} starts"
        case _:
            return "writes to the log"
