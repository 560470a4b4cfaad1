"""Tries what a ``parquet`` handler needs to start, and leaves nothing."""

from pathlib import Path

from tailrace.destination import ProbeContext, RunIdentity, probe_directory
from tailrace.destinations.parquet import ParquetHandlerSettings
from tailrace.destinations.parquet.lake_handler import refusal
from tailrace.destinations.parquet.landing import Landing
from tailrace.errors import SegmentUnreadable
from tailrace.lake.segment import LAKE_FILE, Documents
from tailrace.lake.storage import scheme
from tailrace.lake.writable_lake import WritableLake, open_storage


def probe_lake(name: str, settings: ParquetHandlerSettings, context: ProbeContext) -> str:
    """Tries to write the lake, and whether it belongs to the cluster in each of the scopes.

    Returns what is possible. Blocks. Raises :class:`tailrace.errors.TailraceError`.
    """
    try:
        if new := _new(settings.path):
            return new
        lake = WritableLake.open(settings.path)
    except (OSError, ValueError, SegmentUnreadable) as error:
        raise refusal(name, settings, error) from error
    results = [f"the lake {settings.path} can be written"]
    for scope in context.scopes:
        landing = Landing(lake, scope.name, Documents(settings.documents))
        newest = landing.probe_begin(RunIdentity(scope.name, context.cluster, "", 0))
        after = f"continues after segment {newest}" if newest >= 0 else "begins with segment 0"
        results.append(f"scope {scope.name} {after}")
    return "; ".join(results)


def _new(path: str) -> str:
    """What is possible if there is no lake yet; empty if there is one."""
    if scheme(path) in ("", "file"):
        root = Path(path.removeprefix("file://"))
        if (root / LAKE_FILE).exists():
            return ""
        with probe_directory(root) as directory:
            WritableLake.open(str(directory))
        return f"a lake can be created at {path}"
    try:
        open_storage(path).read(LAKE_FILE)
    except FileNotFoundError:
        message = "which the first start creates. Writing was not tried, as the object would stay"
        return f"{path} can be read, and has no lake yet, {message}"
    return ""
