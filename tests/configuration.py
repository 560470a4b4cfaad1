"""Reads configurations as the daemon does: with every type of handler that is installed."""

import os
from collections.abc import Mapping
from typing import Any

from tailrace.config import loading, settings
from tailrace.config.settings import Settings
from tailrace.handlers.types import handler_models, installed_models


def load(path: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> Settings:
    return loading.load(path, handler_models, environ)


def loads(text: str, environ: Mapping[str, str] | None = None) -> Settings:
    return loading.loads(text, handler_models, environ)


def schema() -> dict[str, Any]:
    return settings.schema(settings.model_of(installed_models()))
