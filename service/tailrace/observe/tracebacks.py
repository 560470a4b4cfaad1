"""A traceback for a log line: of limited size, without the engine's frames or the error's text."""

import traceback
from itertools import islice
from pathlib import Path
from types import TracebackType

from tailrace.errors import describe
from tailrace.masking import shortened

LONGEST = 4000
"""The longest traceback, in characters."""
_FIRST_FRAMES, _LAST_FRAMES = 4, 12
_MOST_CAUSES = 3
_MOST_LOOKED_AT = 1200
"""More frames than Python nests. An error that is raised repeatedly keeps all its frames."""
_MACHINERY = str(Path(__file__).parents[1] / "engine")


def frames_of(error: BaseException) -> str:
    """The frames of the error, the innermost last, then those of its causes."""
    parts: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(parts) < _MOST_CAUSES:
        frames = _frames(cause.__traceback__)
        parts.append(frames if cause is error else f"caused by {describe(cause)}\n{frames}")
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return shortened("".join(parts).rstrip(), LONGEST)


def _frames(of: TracebackType | None) -> str:
    walk = islice(traceback.walk_tb(of), _MOST_LOOKED_AT)
    frames = [
        frame
        for frame in traceback.StackSummary.extract(walk, lookup_lines=False)
        if not frame.filename.startswith(_MACHINERY)
    ]
    first, last = frames[:_FIRST_FRAMES], frames[_FIRST_FRAMES:][-_LAST_FRAMES:]
    left_out = len(frames) - len(first) - len(last)
    gap = [f"  ({left_out} frames left out)\n"] if left_out else []
    summary = traceback.StackSummary.from_list
    return "".join([*summary(first).format(), *gap, *summary(last).format()])
