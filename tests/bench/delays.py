"""Where the handlers of drivers and those of Tailrace note delays.

It imports nothing of Tailrace: a driver's process shall have the memory of the driver alone.
"""

import os
from collections.abc import Mapping
from typing import Any


def note(called: int, document: Mapping[str, Any]) -> None:
    """Records the delay of a document that contains the time at which it was sent."""
    delay = called - document["sentAt"]
    with open(os.environ["BENCH_DELAYS"], "a") as file:
        file.write(f"{delay}\n")
