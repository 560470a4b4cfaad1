"""The examples of the pages about handlers and their tests."""

import re
from pathlib import Path

from tests.checkout import ROOT

PAGE = ROOT / "docs/handlers.md"
TESTING = ROOT / "docs/testing.md"


def python_block(has: str, page: Path = PAGE) -> str:
    """The only Python example of a page that has this text."""
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    (found,) = (block for block in blocks if has in block)
    return str(found)
