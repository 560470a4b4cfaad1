"""Where the checkout is, and what a process that a test starts imports from."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "service"
IMPORTS = os.pathsep.join(map(str, (ROOT, SOURCES)))
"""``PYTHONPATH`` of a process that imports ``tailrace`` and ``tests`` of this checkout."""
