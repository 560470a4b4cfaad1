"""Reads leases and members. A record that is damaged or foreign concerns only its own scope."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tailrace.model.lease import Lease, LeaseTable, Member
from tailrace.model.record_codec import LARGEST

LONGEST = 1e13
"""The most seconds that may be left of a lease: not infinite, and not beyond all dates."""

_REMEDY = (
    "Nothing was changed. Remove this record, or restore it from a backup: a scope then continues "
    "from its checkpoint, with the next epoch"
)


def read_table(
    leases: Iterable[Mapping[str, Any]],
    members: Iterable[Mapping[str, Any]],
    where: Callable[[str], str],
) -> LeaseTable:
    """The leases and members in records with the fields of both classes.

    A field that is missing, or not of its type, is ``None``. ``where`` says where a lease or a
    member of a name is.
    """
    readable, alive, unreadable = list[Lease](), list[Member](), dict[str, str]()
    for record in leases:
        if reason := _damage_of_lease(record):
            name = record["scope"]
            unreadable[name] = f"{where(name)}: the lease cannot be read: {reason}. {_REMEDY}"
        else:
            readable.append(Lease(**record))
    for record in members:
        if missing := [name for name, value in record.items() if value is None]:
            name = f"member:{record['id']}"
            unreadable[name] = (
                f"{where(name)}: the member cannot be read: it lacks {', '.join(missing)}, or has "
                "another type there. It is ignored. Remove this record"
            )
        else:
            alive.append(Member(**record))
    return LeaseTable({record.scope: record for record in readable}, alive, unreadable)


def _damage_of_lease(record: Mapping[str, Any]) -> str:
    epoch, left = record["epoch"], record["seconds_left"]
    if epoch is None or not 0 <= epoch < LARGEST:
        return "its epoch is not a whole number from 0 to 2^63 - 2"
    for name in ("owner", "wanted_by"):
        if record[name] is None:
            return f"its {name} is not text"
    if left is None or left > LONGEST:
        return "its until is not a time"
    return ""
