"""The examples of docs/handlers.md."""

import re

from tests.checkout import ROOT

PAGE = ROOT / "docs/handlers.md"


def python_block(has: str) -> str:
    """The only Python example that has this text."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (found,) = (block for block in blocks if has in block)
    return str(found)
