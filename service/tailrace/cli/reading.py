"""What commands share: reading the configuration, and refusing what they were given."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tailrace.errors import ConfigurationError, Problem

if TYPE_CHECKING:
    from tailrace.config import Settings


def read_settings(options: argparse.Namespace) -> Settings:
    """The settings of ``--config``. Handlers' modules are first looked for beside that file."""
    from tailrace.config import load

    settings = load(options.config)
    sys.path[:0] = [str(Path(options.config).absolute().parent), ""]
    return settings


def refuse(where: str, message: str) -> NoReturn:
    """Raises :class:`ConfigurationError` with one problem."""
    raise ConfigurationError(Problem(where, message))
