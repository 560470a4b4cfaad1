"""``tailrace scopes list`` and ``release``: the leases and positions that are stored."""

import argparse
import json
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio

from tailrace.assembly import open_store
from tailrace.cli.arguments import read_settings, refuse, result_text
from tailrace.cli.checkpoint_text import moment_of
from tailrace.cli.waiting_bar import waiting_bar
from tailrace.config.settings import Settings
from tailrace.config.store import MemoryStoreSettings
from tailrace.model import Checkpoint
from tailrace.model.desired_state import DesiredState
from tailrace.model.lease import Lease, LeaseTable, Member
from tailrace.model.time_text import utc_text
from tailrace.observe.terminal_text import UNKNOWN, age, columns
from tailrace.replicas.lease_view import abandoned
from tailrace.replicas.ports import LeaseStore
from tailrace.stores import Store

_SCOPES = ("SCOPE", "OWNER", "EPOCH", "UNTIL", "CLUSTER TIME", "SAVED")
_MEMBERS = ("MEMBER", "SCOPES", "AT MOST", "JOINED")
_MEMORY = (
    "a store in memory is seen by its own process only: ask that one (GET /status), or use a store "
    "of type sqlite or mongodb"
)
_FAR_SECONDS = 10
"""A handler that is further behind another one is on its own."""
_ENDS = (
    "A process that followed it stops at its next read of the leases; what it has not saved comes "
    "again."
)
_ALONE = "Without 'replicas' one process follows every scope, and the store has no leases.\n"


def run(options: argparse.Namespace) -> int:
    """Lists the scopes, or releases one, and prints the result."""
    with waiting_bar("asking", 30):
        text = anyio.run(_answer, options)
    print(text, end="")
    return 0


async def _answer(options: argparse.Namespace) -> str:
    settings, now = read_settings(options), datetime.now(UTC)
    if isinstance(settings.store, MemoryStoreSettings):
        refuse("store.type", _MEMORY)
    names = [scope.name for scope in settings.scopes]
    async with open_store(settings) as store:
        if options.verb == "release":
            if settings.replicas is None:
                refuse(f"scope {options.scope!r}", f"nothing was released. {_ALONE.rstrip()}")
            done = await release(store.leases, options.scope, dry_run=options.dry_run)
            return result_text(options, {"message": done.rstrip(), "dry_run": options.dry_run})
        if getattr(options, "json", False):
            records = await scope_records(store, names, shared=settings.replicas is not None)
            return json.dumps(records, indent=2) + "\n"
        if settings.replicas is not None:
            return await list_scopes(store, names, now)
        return await list_scopes(store, names, now, shared=False) + f"\n{_ALONE}"


async def list_scopes(
    store: Store, names: Collection[str], now: datetime, *, shared: bool = True
) -> str:
    """A line for each scope that is configured or in the store, then one for each live member.

    ``until`` is by this machine's clock, which may differ from the store's clock.
    """
    table = await store.leases.read() if shared else LeaseTable({}, ())
    saved = {each.scope: each for each in await store.checkpoints.list() if not each.is_reset}
    rows = [
        (scope, *_lease(table, scope, now, shared), *_position(saved.get(scope), now))
        for scope in sorted({*names, *table.leases, *saved})
    ]
    text = columns(_SCOPES, rows)
    if table.members:
        members = sorted(table.members, key=lambda each: each.name)
        text += "\n" + columns(_MEMBERS, [_member(table, each) for each in members])
    for scope, lease in sorted(table.leases.items()):
        if not lease.free and not table.alive(lease.owner):
            since = abandoned(lease, lease.seconds_left)
            text += f"\nNo process follows scope {scope!r}: {since}.\n"
    wanted = await store.desired_states.list()
    for desired in wanted.states:
        if desired.paused:
            at = utc_text(desired.at)
            text += (
                f"\nScope {desired.scope!r} is paused by {desired.by} since {at}: resume it with "
            )
            text += f"'tailrace scopes resume {desired.scope}'.\n"
        for name in _paused(desired):
            text += f"\nHandler {name!r} of scope {desired.scope!r} is paused: resume it with "
            text += f"'tailrace scopes resume {desired.scope} --handler {name}'.\n"
    for checkpoint in saved.values():
        text += _apart(checkpoint)
    unreadable = sorted([*table.unreadable.items(), *wanted.unreadable.items()])
    return text + "".join(f"\n{each}\n" for _, each in unreadable)


def _paused(desired: DesiredState) -> list[str]:
    """The handlers that are paused alone."""
    return [] if desired.paused else sorted(n for n, own in desired.handlers.items() if own.paused)


def _apart(checkpoint: Checkpoint) -> str:
    """Lines for the handlers that are halted alone, or are far behind the furthest one."""
    scope, text = checkpoint.scope, ""
    of_all = checkpoint.subscriptions
    known = [each.position.cluster_time for each in of_all.values()]
    furthest = max((time.time for time in known if time is not None), default=0)
    for name, subscription in sorted(of_all.items()):
        at = subscription.position.cluster_time
        what = f"\nHandler {name!r} of scope {scope!r}"
        if subscription.halted and not all(other.halted for other in of_all.values()):
            text += f"{what} is halted: {subscription.halted}: when that is mended, "
            text += f"'tailrace scopes restart {scope} --handler {name}'.\n"
        elif at is not None and furthest - at.time > _FAR_SECONDS:
            behind = age(timedelta(seconds=furthest - at.time))
            text += f"{what} is at {moment_of(at)}, {behind} behind the furthest one.\n"
    return text


async def scope_records(store: Store, names: Collection[str], *, shared: bool) -> dict[str, Any]:
    """What :func:`list_scopes` shows, in JSON types. Without ``shared`` there are no leases."""
    table = await store.leases.read() if shared else LeaseTable({}, ())
    saved = {each.scope: each for each in await store.checkpoints.list() if not each.is_reset}
    states = (await store.desired_states.list()).states
    paused = {desired.scope: desired for desired in states if desired.paused}
    alone = {desired.scope: _paused(desired) for desired in states}
    scopes = []
    for name in sorted({*names, *table.leases, *saved}):
        lease, checkpoint, desired = table.leases.get(name), saved.get(name), paused.get(name)
        followed = lease is not None and not lease.free and table.alive(lease.owner)
        scopes.append(
            {
                "scope": name,
                "owner": table.name(lease.owner) if lease is not None and followed else None,
                "epoch": lease.epoch if lease is not None else None,
                "lease_seconds_left": lease.seconds_left if lease is not None else None,
                "paused_by": desired.by if desired is not None else None,
                "paused_handlers": alone.get(name, []),
                "checkpoint": checkpoint.to_document() if checkpoint is not None else None,
                "unreadable": table.unreadable.get(name),
            }
        )
    members = sorted(table.members, key=lambda each: each.name)
    return {
        "shared": shared,
        "scopes": scopes,
        "members": [{"name": each.name, "leaving": each.leaving} for each in members],
    }


async def release(leases: LeaseStore, scope: str, *, dry_run: bool) -> str:
    """Takes the lease of a scope from its owner, alive or not, and frees it."""
    table = await leases.read()
    if reason := table.unreadable.get(scope):
        refuse(f"scope {scope!r}", reason)
    if (seen := table.leases.get(scope)) is None:
        refuse(
            f"scope {scope!r}", "has no lease; 'tailrace scopes list' shows those that are stored"
        )
    before = f"Scope {scope!r} is followed by {_owner(table, seen)} (epoch {seen.epoch}).\n"
    if seen.free:
        return f"{before}Its lease is free already: nothing was changed.\n"
    if not table.alive(seen.owner):
        before += f"No process follows it: {abandoned(seen, seen.seconds_left)}.\n"
    if dry_run:
        return f"{before}Dry run: nothing was written.\n"
    if not await leases.free(seen, seen.epoch + 1):
        refuse(f"scope {scope!r}", "nothing was released: its lease has changed. Look at it again")
    after = "a process, perhaps the same, acquires it within seconds"
    return f"{before}Released (epoch {seen.epoch + 1}): {after}. {_ENDS}\n"


async def follower(store: Store, settings: Settings, scope: str) -> str:
    """A line that says which process follows the scope now. Empty without replicas."""
    if settings.replicas is None:
        return ""
    table = await store.leases.read()
    if reason := table.unreadable.get(scope):
        return f"{reason}.\n"
    lease = table.leases.get(scope, Lease(scope))
    return f"Scope {scope!r} is followed by {_owner(table, lease)} (epoch {lease.epoch}).\n"


def _lease(table: LeaseTable, scope: str, now: datetime, shared: bool) -> tuple[str, str, str]:
    """The owner, the epoch, and the end of the lease."""
    if not shared:
        return UNKNOWN, UNKNOWN, UNKNOWN
    if scope in table.unreadable:
        return "unreadable", UNKNOWN, UNKNOWN
    lease = table.leases.get(scope, Lease(scope))
    return _owner(table, lease), str(lease.epoch), _until(lease, now)


def _until(lease: Lease, now: datetime) -> str:
    if lease.free:
        return UNKNOWN
    try:
        return utc_text(now + timedelta(seconds=lease.seconds_left))
    except OverflowError:
        return "after the year 9999"


def _owner(table: LeaseTable, lease: Lease) -> str:
    return table.name(lease.owner) if not lease.free and table.alive(lease.owner) else "nobody"


def _position(saved: Checkpoint | None, now: datetime) -> tuple[str, str]:
    """The cluster time up to which everything is handled, and how long ago it was saved."""
    if saved is None:
        return UNKNOWN, UNKNOWN
    return moment_of(saved.position.cluster_time), f"{age(now - saved.saved_at)} ago"


def _member(table: LeaseTable, member: Member) -> tuple[str, str, str, str]:
    held = sum(each.owner == member.id and not each.free for each in table.leases.values())
    most = str(member.max_scopes) if member.max_scopes else UNKNOWN
    joined = age(timedelta(seconds=member.age_seconds))
    return member.name, str(held), most, "leaving" if member.leaving else f"{joined} ago"
