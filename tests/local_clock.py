"""Processes whose local clock is wrong, by libfaketime."""

from tests.packages import unpacked


def wrong_by(offset: str) -> dict[str, str]:
    """The environment of a process whose clock is wrong by so much: ``-5h``, ``+400d``.

    As with a wrong clock, timers keep running: the monotonic clocks are right. Absolute sleeps,
    which the threads of Motor use, fail all the same.
    """
    (library,) = unpacked("libfaketime").rglob("libfaketimeMT.so.1")
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME": offset,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        # Else each timed wait for Python's global lock ends at once, and threads fight for it.
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
    }
