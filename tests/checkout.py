"""Where the checkout is, and the import path for processes that tests start."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "service"
IMPORTS = os.pathsep.join(map(str, (ROOT, SOURCES)))
"""``PYTHONPATH`` for a process that imports ``tailrace`` and ``tests`` from this checkout."""
