"""Where the lake and the tables are: the options of a command, or the section ``pipeline``."""

import argparse

from tailrace.config.loading import load_pipeline
from tailrace.config.pipeline import PipelineSettings
from tailrace.errors import ConfigurationError, Problem
from tailrace.lake.s3 import bucket_of
from tailrace.lake.storage import scheme
from tailrace.pipeline.location import Location


def chosen(options: argparse.Namespace) -> tuple[PipelineSettings, Location, Location]:
    """The settings of the file, the lake and the tables; options override the file.

    Raises :class:`ConfigurationError` if one is not given, or names no bucket.
    """
    settings = _settings(options)
    lake, tables = options.lake or settings.lake, options.tables or settings.tables
    _check(lake=lake, tables=tables)
    return settings, Location.of(lake or ""), Location.of(tables or "")


def chosen_tables(options: argparse.Namespace) -> tuple[Location | None, Location]:
    """As :func:`chosen`, for what needs no lake."""
    settings = _settings(options)
    lake, tables = options.lake or settings.lake, options.tables or settings.tables
    _check(tables=tables, **({"lake": lake} if lake else {}))
    return Location.of(lake) if lake else None, Location.of(tables or "")


def _settings(options: argparse.Namespace) -> PipelineSettings:
    return load_pipeline(options.config) if options.config else PipelineSettings()


def _check(**locations: str | None) -> None:
    problems = [
        Problem(f"--{name}", why)
        for name, location in locations.items()
        if (why := _why_not(name, location))
    ]
    if problems:
        raise ConfigurationError(*problems)


def _why_not(name: str, location: str | None) -> str:
    if not location:
        return f"is needed, here or as pipeline.{name} of the file of --config"
    if scheme(location) in ("s3", "s3a") and not bucket_of(location):
        return f"{location}: names no bucket: write s3://BUCKET/PREFIX"
    return ""
