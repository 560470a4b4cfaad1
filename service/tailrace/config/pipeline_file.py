"""Loads the section ``pipeline`` of a file, without the models of all the other sections."""

import os
from collections.abc import Mapping

from pydantic import Field

from tailrace.config.fields import Section
from tailrace.config.pipeline import PipelineSettings
from tailrace.config.sections import load_only


class _PipelineOnly(Section):
    """What ``tailrace pipeline`` reads."""

    pipeline: PipelineSettings = Field(default_factory=PipelineSettings)


def load_pipeline(
    path: str | os.PathLike[str], environ: Mapping[str, str] | None = None
) -> PipelineSettings:
    """The section ``pipeline`` of a file; see :func:`tailrace.config.sections.load_only`."""
    return load_only(_PipelineOnly, path, environ).pipeline
