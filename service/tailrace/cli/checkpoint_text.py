"""Checkpoints and gaps as text for an operator: a table, or all details of one checkpoint."""

from collections.abc import Sequence
from datetime import datetime

from bson.timestamp import Timestamp

from tailrace.model import Checkpoint
from tailrace.model.gap import Gap
from tailrace.model.subscription import Subscription
from tailrace.model.time_text import utc_text
from tailrace.observe.terminal_text import UNKNOWN, age, columns, fields

_HEADINGS = ("SCOPE", "KIND", "CLUSTER TIME", "EPOCH", "SEQUENCE", "SAVED AT", "AGE", "GAPS")


def table(counted: Sequence[tuple[Checkpoint, int]], now: datetime) -> str:
    """One line for each checkpoint with its number of gaps, under headings; times in UTC."""
    rows = [
        (
            checkpoint.scope,
            checkpoint.position.kind.value,
            moment_of(checkpoint.position.cluster_time),
            str(checkpoint.epoch),
            str(checkpoint.sequence),
            utc_text(checkpoint.saved_at),
            age(now - checkpoint.saved_at),
            str(gaps),
        )
        for checkpoint, gaps in counted
    ]
    return columns(_HEADINGS, rows)


def details(checkpoint: Checkpoint, now: datetime) -> str:
    """Every field on its own line, with whole tokens and the point where the stream continues."""
    position = checkpoint.position
    time, event, high_water = position.cluster_time, position.event_token, position.high_water
    increment = "" if time is None else f" (Timestamp({time.time}, {time.inc}))"
    record = {
        "scope": checkpoint.scope,
        "kind": position.kind.value,
        "resumes at": str(position.start_point),
        "event token": event.to_json() if event else UNKNOWN,
        "high water": high_water.to_json() if high_water else UNKNOWN,
        "cluster time": moment_of(time) + increment,
        "cluster": checkpoint.cluster or UNKNOWN,
        "fingerprint": checkpoint.fingerprint or UNKNOWN,
        "epoch": str(checkpoint.epoch),
        "sequence": str(checkpoint.sequence),
        "saved at": f"{utc_text(checkpoint.saved_at)} ({age(now - checkpoint.saved_at)} ago)",
    }
    if checkpoint.halted:
        record["halted"] = checkpoint.halted
    of_handlers = [("handler", _handler(*each)) for each in checkpoint.subscriptions.items()]
    damaged = [("handler", f"{name}: cannot be read") for name in checkpoint.damaged]
    return fields([*record.items(), *of_handlers, *damaged])


def _handler(name: str, subscription: Subscription) -> str:
    """How far a handler is."""
    at = subscription.position
    single = len(at.handled)
    more = f", and {single} later change{'s' * (single > 1)}" if single else ""
    halted = f"; halted: {subscription.halted}" if subscription.halted else ""
    return f"{name}: has all up to {moment_of(at.cluster_time)}{more}{halted}"


def history(gaps: Sequence[Gap]) -> str:
    """The gaps under a heading; empty if there are none."""
    if not gaps:
        return ""
    return "\nGaps (changes that were skipped), oldest first:\n" + "".join(map(_gap, gaps))


def moment_of(time: Timestamp | None) -> str:
    """A cluster time as ISO 8601 in UTC, to the second."""
    return UNKNOWN if time is None else utc_text(time)


def _gap(gap: Gap) -> str:
    reason = " ".join(gap.reason.split())  # a server's message may have several lines
    of = f"    {'handlers:':<13}{', '.join(gap.handlers)}\n" if gap.handlers else ""
    return (
        f"  {moment_of(gap.since)} → {moment_of(gap.until)}\n{of}"
        f"    {'policy:':<13}{gap.policy}\n"
        f"    {'reason:':<13}{reason}\n"
        f"    {'recorded at:':<13}{utc_text(gap.recorded_at)}\n"
    )
