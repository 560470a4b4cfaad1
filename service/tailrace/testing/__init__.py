"""Tests of handlers: the real engine in memory, without a server and without waiting.

- :class:`Changes`: writes changes, and gives the event of each as MongoDB would send it.
- :class:`Harness`: runs a handler with retries, outages, repeats, dead letters, kills and
  hand-overs.
- :func:`each_change_once`, :func:`at_least_once`: try every fault, and name what is wrong.
- :func:`transformed`: what a ``transform`` makes of events.
- :class:`DestinationContract`: what every destination promises, as tests of a class.

They need no plugin: any test that runs a coroutine will do.
"""

from tailrace.testing.changes import Changes
from tailrace.testing.checks import GuaranteeBroken, at_least_once, each_change_once
from tailrace.testing.destination_contract import DestinationContract
from tailrace.testing.faults import Fault
from tailrace.testing.harness import Harness, Letter, NotHandled
from tailrace.testing.transformed import transformed

__all__ = [
    "Changes",
    "DestinationContract",
    "Fault",
    "GuaranteeBroken",
    "Harness",
    "Letter",
    "NotHandled",
    "at_least_once",
    "each_change_once",
    "transformed",
]
