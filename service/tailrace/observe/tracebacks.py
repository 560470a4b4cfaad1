"""A traceback for a log line: the frames of the code that failed, without the machinery before it.

Bounded, however deep the code was, and without the error's own text, which stands beside it.
"""

from __future__ import annotations

import traceback
from collections import deque
from itertools import islice
from pathlib import Path
from types import FrameType, TracebackType

from tailrace.errors import describe, shortened

LONGEST = 4000
"""Characters of a traceback."""
_MOST_FRAMES = 16
_FIRST_FRAMES = 4
_MOST_CAUSES = 3
_MOST_LOOKED_AT = 1200
"""More than Python nests. An error that is raised again and again keeps all its frames."""
_MACHINERY = str(Path(__file__).parents[1] / "engine")


def frames_of(error: BaseException) -> str:
    """The frames of the error, the innermost last, and those of what caused it."""
    parts: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(parts) < _MOST_CAUSES:
        frames = _frames(cause.__traceback__)
        parts.append(frames if cause is error else f"caused by {describe(cause)}\n{frames}")
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return shortened("".join(parts).rstrip(), LONGEST)


def _frames(of: TracebackType | None) -> str:
    first: list[tuple[FrameType, int]] = []
    last: deque[tuple[FrameType, int]] = deque(maxlen=_MOST_FRAMES - _FIRST_FRAMES)
    count = 0
    for frame, line in islice(traceback.walk_tb(of), _MOST_LOOKED_AT):
        if not frame.f_code.co_filename.startswith(_MACHINERY):
            (first if count < _FIRST_FRAMES else last).append((frame, line))
            count += 1
    left_out = count - len(first) - len(last)
    extract = traceback.StackSummary.extract
    return "".join(
        (
            *extract(first).format(),
            *([f"  ({left_out} frames left out)\n"] if left_out else []),
            *extract(last).format(),
        )
    )
