"""How every command reads its configuration."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.config import Settings


def read_settings(options: argparse.Namespace) -> Settings:
    """The settings of ``--config``. Modules of handlers are looked for beside that file first."""
    from tailrace.config import load

    settings = load(options.config)
    sys.path[:0] = [str(Path(options.config).absolute().parent), ""]
    return settings
