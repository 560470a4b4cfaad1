"""What many runs together have covered, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

HEADINGS = (
    (
        "runs",
        ("runs", "scopes", "processes", "changes", "rows", "snapshots", "replays", "handled again"),
    ),
    ("ends of processes", ("kills", "stops", "forced stops", "sleeps")),
    ("repairs by the operator", ("repairs ",)),
    ("handlers", ("handler: ",)),
    ("faults of destinations", ("destination: ",)),
    ("faults of the store", ("store: ", "leases: ")),
    ("faults of the server", ("server: ",)),
    ("orders by state", ("order ",)),
    ("reasons why changes may come again", ("reason to repeat: ",)),
    ("what the service logged", ("log: ",)),
)

REQUIRED = (
    "kills",
    "stops",
    "forced stops",
    "handled again",
    "destination: outage: error",
    "destination: outage: hang",
    "destination: lost answer",
    "store: failure",
    "store: lost answer",
    "store: outage: hang",
    "server: elections",
    "server: failure",
    "log: event.dead_lettered",
    "log: destination.recovered",
    "log: history.skipped",
    "log: scope.sought",
    "repairs of a lost history",
    "log: watcher.entered paused",
    "log: watcher.restarting",
    "log: subscription.detached",
    "log: subscription.attached",
    "log: lease.acquired",
    "log: lease.handed_over",
    "log: lease.lost",
    "log: snapshot.done",
    "log: stream.invalidated",
    "log: scope.halted",
    "rows",
    "sleeps",
    "destination: call of a former process",
    "server: streams refused",
    "server: resumes within a split event",
    "server: upgrades",
    "replays",
    "destination: restored",
    "destination: emptied",
    "log: snapshot.paused",
    "log: snapshot.resumed",
    "log: snapshot.cancelled",
    "order reload: add",
    "order reload: remove",
    "order reload: bring back",
    "order pause of a handler",
    "order seek of a handler",
    "order snapshot of a handler",
    "order restart",
)
"""Without one of these, some hundred runs show less than they seem to."""


def table(covered: Counter[str]) -> Iterator[str]:
    """The lines of a report."""
    for heading, prefixes in HEADINGS:
        names = sorted(name for name in covered if name.startswith(prefixes))
        if names:
            yield f"{heading}:"
            yield from (f"  {covered[name]:>10,}  {name}" for name in names)


def absent(covered: Counter[str]) -> list[str]:
    """What should have happened, and has not."""
    return [name for name in REQUIRED if not any(each.startswith(name) for each in covered)]
