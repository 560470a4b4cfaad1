"""What the demo needs to know of a destination, and how it compares messages with the source."""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from tailrace.demo.child_process import ChildProcess, last_lines
from tailrace.demo.verification import replay
from tailrace.errors import StartRefused

START_SECONDS = 120.0
"""Usually a second; Kafka takes five, and a loaded machine many times as long."""

Source = Mapping[str, Sequence[bytes]]
"""The raw documents of the source, by namespace."""


@dataclass(frozen=True, slots=True)
class Target:
    """A destination whose server runs.

    ``handler``: what its configuration has below ``handlers.NAME``. ``location``: where to look at
    what is there while the demo runs. ``differences``: compares what is there with the source.
    """

    handler: Mapping[str, Any]
    location: str
    differences: Callable[[Source], Awaitable[list[str]]]


NATIVE = {"envelope": "native", "json": "canonical"}
"""The configuration of messages that :func:`message_differences` can read: it loses no type."""


def message_differences(messages: Iterable[bytes], source: Source) -> list[str]:
    """Replays native messages in order, as the events of the file, and compares the result."""
    try:
        return replay(each.decode() for each in messages).differences(source)
    except ValueError as error:
        return [str(error)]


async def until_answers(
    child: ChildProcess, name: str, answers: Callable[[], Awaitable[bool]]
) -> None:
    """Waits until a server answers. Raises :class:`StartRefused` with the end of its log."""
    with anyio.move_on_after(START_SECONDS):
        while child.process.returncode is None:
            if await answers():
                return
            await anyio.sleep(0.1)
    raise StartRefused(f"{name} did not start; the end of its log:\n{last_lines(child.log)}")


async def accepts(port: int) -> bool:
    """Whether a server on loopback accepts connections."""
    try:
        async with await anyio.connect_tcp("127.0.0.1", port):
            return True
    except OSError:
        return False


def as_plain(text: str) -> Any:
    """Relaxed Extended JSON with exact numbers, whatever their notation."""
    from decimal import Decimal

    return json.loads(text, parse_float=Decimal, parse_int=Decimal)
