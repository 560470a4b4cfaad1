"""Asks the server again about a start that it refused: is it the position, or the moment?"""

from dataclasses import replace

import anyio

from tailrace.engine.error_policy import REFUSALS, Blame
from tailrace.errors import CommandFailed, ConnectionFailed, DriverError, StreamError
from tailrace.model import Scope, StartPoint
from tailrace.model.start import NOW
from tailrace.stream import ChangeStream, ChangeStreamOptions, Driver

_PROBE_SECONDS = 20.0


async def blame(
    driver: Driver, scope: Scope, options: ChangeStreamOptions, start: StartPoint
) -> Blame:
    """Sends the same commands without the start point, and then with it.

    The position is at fault only if they succeed without it, and still fail with it: a code alone
    may come from a member that starts, stops or has just been replaced.
    """
    options = replace(options, batch_size=1, comment="tailrace: probe of a start point")
    try:
        if await _refused(driver, scope, options, NOW):
            return Blame.COMMAND
        at_fault = start != NOW and await _refused(driver, scope, options, start)
    except DriverError:
        return Blame.MOMENT
    return Blame.POSITION if at_fault else Blame.MOMENT


async def _refused(
    driver: Driver, scope: Scope, options: ChangeStreamOptions, start: StartPoint
) -> bool:
    stream = ChangeStream(driver, scope, options, start)
    try:
        with anyio.fail_after(_PROBE_SECONDS):
            async with stream:
                await stream.next_batch()
                await stream.next_batch(wait=False)
    except CommandFailed as error:
        if REFUSALS.get(error.code, (None, ""))[0] is Blame.MOMENT:
            raise
        return True
    except StreamError:
        pass  # an event ends the stream, or begins before it
    except TimeoutError as error:
        raise ConnectionFailed("no answer to a probe of the start point") from error
    return False
