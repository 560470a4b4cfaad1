"""The scripted set as a process of its own, filled with inserts: a source for speed work.

python -m tests.scripted --members 1 --events 200000 --event-bytes 600

Prints its connection string and serves until its standard input ends or it is interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import sys

from .events import encoded_inserts
from .replica_set import ScriptedSet


def main() -> None:
    """Serve until told to end."""
    parser = argparse.ArgumentParser(prog="tests.scripted", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="of the first member; 0: any")
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--namespace", default="shop.orders")
    parser.add_argument("--events", type=int, default=0)
    parser.add_argument("--event-bytes", type=int, default=600)
    options = parser.parse_args()
    with ScriptedSet(options.members, ports=[options.port]) as server:
        raw = encoded_inserts(
            options.namespace, options.events, options.event_bytes, server.cluster_time
        )
        server.append_raw(raw, namespace=options.namespace)
        print(server.uri, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            sys.stdin.read()


if __name__ == "__main__":
    main()
