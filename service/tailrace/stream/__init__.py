"""One resumable change stream, as the driver specification describes it.

>>> async with ChangeStream(driver, Scope("orders", "shop", "orders")) as stream:
...     batch = await stream.next_batch()

The stream reads and resumes; :mod:`tailrace.engine` handles the events and stores the position.
"""

from tailrace.stream.activity import StreamActivity
from tailrace.stream.aggregate import ChangeStreamOptions, fingerprint
from tailrace.stream.change_stream import SERVER_REPLY_BYTES, ChangeStream
from tailrace.stream.driver_port import AtWork, CommandRunner, CursorRequest, Driver, LookUp
from tailrace.stream.interrupt import Interrupt
from tailrace.stream.lookup import LookupStream
from tailrace.stream.resumable import HISTORY_LOST, NO_ACCESS, may_be_of_event
from tailrace.stream.server_clock import ASK_SECONDS, OplogRange, ServerClock
from tailrace.stream.unsent_event import UnsentEvent, find_unsent

__all__ = [
    "ASK_SECONDS",
    "HISTORY_LOST",
    "NO_ACCESS",
    "SERVER_REPLY_BYTES",
    "AtWork",
    "ChangeStream",
    "ChangeStreamOptions",
    "CommandRunner",
    "CursorRequest",
    "Driver",
    "Interrupt",
    "LookUp",
    "LookupStream",
    "OplogRange",
    "ServerClock",
    "StreamActivity",
    "UnsentEvent",
    "find_unsent",
    "fingerprint",
    "may_be_of_event",
]
