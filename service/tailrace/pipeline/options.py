"""Where the lake and the tables are: the options of a command, or the section ``pipeline``."""

import argparse

from tailrace.config.pipeline import PipelineSettings
from tailrace.config.pipeline_file import load_pipeline
from tailrace.errors import ConfigurationError, Problem
from tailrace.lake.s3 import misplaced
from tailrace.pipeline.location import Location
from tailrace.pipeline.tables import TableStore, open_store


def chosen(options: argparse.Namespace) -> tuple[PipelineSettings, Location, TableStore]:
    """The settings of the file, the lake and the tables; options override the file.

    Raises :class:`ConfigurationError` if one is not given, or cannot be there.
    """
    settings = _settings(options)
    lake = options.lake or settings.lake
    tables = _tables(settings, options.tables, lake=lake)
    return settings, Location.of(lake or ""), tables


def chosen_tables(options: argparse.Namespace) -> tuple[Location | None, TableStore]:
    """As :func:`chosen`, for what needs no lake."""
    settings = _settings(options)
    lake = options.lake or settings.lake
    tables = _tables(settings, options.tables, **({"lake": lake} if lake else {}))
    return Location.of(lake) if lake else None, tables


def tables_of(options: argparse.Namespace) -> tuple[PipelineSettings, TableStore]:
    """As :func:`chosen`, for what knows no lake."""
    settings = _settings(options)
    return settings, _tables(settings, options.tables)


def _settings(options: argparse.Namespace) -> PipelineSettings:
    return load_pipeline(options.config) if options.config else PipelineSettings()


def _tables(settings: PipelineSettings, where: str | None, **locations: str | None) -> TableStore:
    at = settings.tables_at(where)
    locations["tables"] = at.where if at else None
    problems = [
        Problem(f"--{name}", why)
        for name, location in locations.items()
        if (why := _why_not(name, location))
    ]
    if problems or at is None:
        raise ConfigurationError(*problems)
    return open_store(at)


def _why_not(name: str, location: str | None) -> str:
    if not location:
        return f"is needed, here or as pipeline.{name} of the file of --config"
    return misplaced(location, "lake" if name == "lake" else "table")
