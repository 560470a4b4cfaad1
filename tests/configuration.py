"""Reads configurations as the daemon does: with every type of handler that is installed."""

import os
from collections.abc import Mapping
from typing import Any

from tailrace import config
from tailrace.config import Settings
from tailrace.handlers.types import handler_models, installed_models


def load(path: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> Settings:
    return config.load(path, handler_models, environ)


def loads(text: str, environ: Mapping[str, str] | None = None) -> Settings:
    return config.loads(text, handler_models, environ)


def schema() -> dict[str, Any]:
    return config.schema(config.model_of(installed_models()))
