"""Slow handlers, and handlers as users should not write them; a module beside the configuration.

They note the ``_id`` of each event in ``begun`` when they start and in ``ended`` when they finish.
While the file ``closed`` exists, they wait.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread

from tailrace.event import ChangeEvent


def note(where: str, *events: ChangeEvent) -> None:
    ids = [event.document_key["_id"] for event in events if event.document_key]
    with open(where, "a") as file:
        file.write("".join(f"{number}\n" for number in ids))


def closed() -> bool:
    return Path("closed").exists()


async def opened() -> None:
    while closed():  # noqa: ASYNC110 - another process opens
        await anyio.sleep(0.02)


async def slow(event: ChangeEvent) -> None:
    note("begun", event)
    await opened()
    note("ended", event)


async def slow_batch(events: Sequence[ChangeEvent]) -> None:
    note("batch-begun", *events)
    await opened()
    note("batch-ended", *events)


async def hangs_at_three(event: ChangeEvent) -> None:
    note("begun", event)
    if event.document_key == {"_id": 3}:
        await opened()
    note("ended", event)


async def swallows(event: ChangeEvent) -> None:
    note("begun", event)
    while closed():
        with suppress(BaseException):  # handlers must not do this
            await anyio.sleep(0.02)
    note("ended", event)


async def in_a_thread(event: ChangeEvent) -> None:
    note("begun", event)
    await anyio.to_thread.run_sync(_until_opened)
    await anyio.lowlevel.checkpoint()  # raises a cancellation that arrived meanwhile
    note("ended", event)


def _until_opened() -> None:
    while closed():
        time.sleep(0.02)


async def keeps_the_loop(event: ChangeEvent) -> None:
    note("begun", event)
    _until_opened()
    note("ended", event)


async def leaves(event: ChangeEvent) -> None:
    note("begun", event)
    if closed():
        sys.exit(0)
    note("ended", event)


async def interrupts(event: ChangeEvent) -> None:
    note("begun", event)
    if closed():
        raise KeyboardInterrupt
    note("ended", event)


async def interrupts_in_a_task(event: ChangeEvent) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(interrupts, event)


async def cancels_everything(event: ChangeEvent) -> None:
    note("begun", event)
    if closed():
        for task in asyncio.all_tasks():
            task.cancel()
        await anyio.sleep_forever()
    note("ended", event)


async def leaves_in_a_task(event: ChangeEvent) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(leaves, event)
