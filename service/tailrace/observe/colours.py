"""Whether a stream shows colours."""

import os
from typing import TextIO


def shows_colours(out: TextIO) -> bool:
    """Whether ``out`` is a terminal, and ``NO_COLOR`` (https://no-color.org) is not set."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and out.isatty()
