"""Many idle streams, then one command; a process, because Motor sizes its thread pool only once.

python -m tests.contract.idle_streams DRIVER URI STREAMS
"""

import asyncio
import sys
from contextlib import AsyncExitStack

import anyio

from tailrace.drivers import DRIVERS, identify
from tailrace.model import Scope
from tailrace.stream import ChangeStream, ChangeStreamOptions

WAIT_MS = 1500


async def main(name: str, uri: str, count: int) -> None:
    """Probes first, as the service does, then opens the streams and sends a command."""
    await identify(DRIVERS[name], uri, 5)
    async with DRIVERS[name](uri, count) as driver, AsyncExitStack() as stack:
        options = ChangeStreamOptions(max_await_time_ms=WAIT_MS)
        streams = [ChangeStream(driver, Scope("s", "shop", f"c{n}"), options) for n in range(count)]
        for stream in streams:
            await stack.enter_async_context(stream)
            await stream.next_batch()
        async with anyio.create_task_group() as reading:
            for stream in streams:
                reading.start_soon(stream.next_batch)
            await asyncio.to_thread(sys.stdin.readline)  # until all streams wait at the server
            await driver.run("admin", {"ping": 1, "comment": "in between"})


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
