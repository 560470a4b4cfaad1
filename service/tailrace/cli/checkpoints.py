"""``tailrace checkpoints``: lists, shows, sets and resets the stored positions.

``set`` and ``reset`` use the next epoch, so the store refuses further saves of a running daemon.
``set`` keeps the cluster identity and the fingerprint of the record that it replaces; if they are
empty, the daemon fills them in. ``reset`` leaves a record that has only the epoch.

Exit codes: 0 done, 1 the store failed, 2 wrong usage or configuration.
"""

import argparse
import json
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import anyio

from tailrace.assembly import open_store
from tailrace.cli.arguments import add_config, read_settings, refuse, scope_of
from tailrace.cli.checkpoint_text import details, history, table
from tailrace.cli.position_options import read_position
from tailrace.cli.scope_leases import follower
from tailrace.cli.waiting_bar import waiting_bar
from tailrace.engine.ports import CheckpointStore
from tailrace.errors import CheckpointCorrupt, CheckpointFenced
from tailrace.model import Checkpoint, Position
from tailrace.model.record_codec import LARGEST
from tailrace.model.subscription import Subscription

_UNKNOWN = "has no checkpoint; 'tailrace checkpoints list' shows those that are stored"
_NO_POSITION = "  scope:        {}\n  (no checkpoint: the scope starts at its start_at)\n"
_DRY_RUN = "Dry run: nothing was written.\n"
_FENCED = (
    "A daemon that follows it now halts the scope at its next save: restart it, or the scope. With "
    "'replicas' the scope resumes there by itself.\n"
)


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listed = verbs.add_parser("list", help="every scope's position")
    listed.add_argument("--json", action="store_true", help="the records as they are stored")
    show = verbs.add_parser("show", help="one scope's position in full")
    show.add_argument("--json", action="store_true", help="the record as it is stored")
    place = verbs.add_parser(
        "set", help="choose where a scope continues (best with the daemon stopped)"
    )
    place.add_argument("--token", metavar="JSON", help="a resume token as Extended JSON")
    place.add_argument("--token-data", metavar="HEX", help="the _data of a resume token")
    place.add_argument("--at", metavar="TIME", help="ISO 8601 with offset: starts at that second")
    place.add_argument(
        "--after-invalidate", action="store_true", help="the token is that of an invalidate event"
    )
    reset = verbs.add_parser("reset", help="delete a scope's position: it starts at its start_at")
    for verb in (show, place, reset):
        verb.add_argument("scope", help="the scope's name")
    for verb in (place, reset):
        verb.add_argument("--dry-run", action="store_true", help="say what would change")
        verb.add_argument("--json", action="store_true", help="the records before and after")
    for verb in verbs.choices.values():
        add_config(verb)


def run(options: argparse.Namespace) -> int:
    """Runs the verb, and prints the result."""
    with waiting_bar("asking the store", 30):
        text = anyio.run(_answer, options)
    print(text.rstrip())
    return 0


async def _answer(options: argparse.Namespace) -> str:
    now, position = datetime.now(UTC), None
    if options.verb == "set":
        position = read_position(
            options.token, options.token_data, options.at, options.after_invalidate
        )
    settings = read_settings(options)
    if position is not None:
        scope_of(options.scope, settings, options.config)
    async with open_store(settings) as opened:
        store = opened.checkpoints
        if options.verb == "list":
            return await list_positions(store, now, options.json)
        scope = options.scope
        if options.verb == "show":
            return await show_position(store, scope, now, options.json)
        followed = await follower(opened, settings, scope)
        order = await opened.orders.load(scope)
        obeyed = order.number if order is not None else 0  # what is chosen here replaces a seek
        before = await _record(store, scope) if options.json else None
        if position is None:
            text = await reset_position(store, scope, now, options.dry_run, obeyed)
            if order is not None and order.asks and not options.dry_run:
                # The checkpoint said whether it was obeyed.
                order = order.without_snapshots()
                await opened.orders.give(order)
        else:
            text = await set_position(store, scope, position, now, options.dry_run, obeyed)
        if options.json:
            after = await _record(store, scope)
            found = {"dry_run": options.dry_run, "before": before, "after": after}
            return json.dumps({"message": text + followed, **found}, indent=2)
        return text + followed


async def list_positions(store: CheckpointStore, now: datetime, as_json: bool = False) -> str:
    """A table of every stored position in the order of scope names, with the number of gaps; or
    the records, as JSON."""
    known = [each for each in await store.list() if not each.is_reset]
    if as_json:
        return json.dumps([each.to_document() for each in known], indent=2)
    found = [(each, len(await store.gaps(each.scope))) for each in known]
    return table(found, now) if found else "No checkpoints are stored.\n"


async def show_position(
    store: CheckpointStore, scope: str, now: datetime, as_json: bool = False
) -> str:
    """A scope's checkpoint and gaps. As JSON: the record as stored, with the gaps under ``gaps``.

    After a reset a scope may have gaps but no checkpoint.
    """
    checkpoint, gaps = await store.load(scope), await store.gaps(scope)
    checkpoint = None if checkpoint is None or checkpoint.is_reset else checkpoint
    if checkpoint is None and not gaps:
        refuse(f"scope {scope!r}", _UNKNOWN)
    if as_json:
        record = checkpoint.to_document() if checkpoint else {"scope": scope}
        return json.dumps(record | {"gaps": [gap.to_document() for gap in gaps]}, indent=2) + "\n"
    position = details(checkpoint, now) if checkpoint else _NO_POSITION.format(scope)
    return position + history(gaps)


async def set_position(
    store: CheckpointStore,
    scope: str,
    position: Position,
    now: datetime,
    dry_run: bool = False,
    obeyed: int = 0,
) -> str:
    """Makes the scope resume at ``position``. Also replaces a record that cannot be read.

    ``obeyed``: the number of the last order for the scope, which is not obeyed after this.
    """
    before, text, epoch = await _before(store, scope, now)
    if epoch is not None and epoch > LARGEST:
        refuse(f"scope {scope!r}", "its epoch is the greatest there is; reset it, then set it")
    chosen = replace(position, chosen=True)
    after = Checkpoint(
        scope=scope,
        position=_chosen(chosen, before.last, now) if before else chosen,
        cluster=before.cluster if before else "",
        fingerprint=before.fingerprint if before else "",
        epoch=int(now.timestamp()) if epoch is None else epoch,
        sequence=1,
        saved_at=now,
        obeyed=obeyed,
    )
    if before is not None:
        known = {**dict.fromkeys(before.damaged, before.last), **before.subscriptions}
        moved = {name: _chosen(chosen, each, now) for name, each in known.items()}
        after = after.with_subscriptions(
            {name: replace(after.last, position=at) for name, at in moved.items()}
        )
    if not dry_run:
        advice = "Look at it again, and repeat"
        if epoch is None:
            advice = "Remove it first with 'tailrace checkpoints reset', then set it"
        await _save(store, after, f"nothing was set: {{}}. {advice}")
    end = _DRY_RUN if dry_run else f"Stored. {_FENCED}"
    return f"Before:\n{text}\nAfter:\n{details(after, now)}\n{end}"


def _chosen(position: Position, before: Subscription, now: datetime) -> Position:
    """The position that is set, with what stays of that of a handler."""
    at = before.position
    return replace(
        position, snapshot=at.snapshot, reread=at.reread_from(position.cluster_time, now)
    )


async def reset_position(
    store: CheckpointStore, scope: str, now: datetime, dry_run: bool = False, obeyed: int = 0
) -> str:
    """Removes the scope's checkpoint, readable or not, so that it starts at its ``start_at``."""
    before, text, epoch = await _before(store, scope, now)
    if before is None and epoch is not None:
        refuse(f"scope {scope!r}", _UNKNOWN)
    if dry_run:
        return f"Before:\n{text}\n{_DRY_RUN}"
    if epoch is None or epoch > LARGEST:
        await store.reset(scope)
        epoch = int(now.timestamp())
    nowhere = Checkpoint.nowhere(scope)
    after = replace(nowhere, epoch=epoch, sequence=1, saved_at=now, obeyed=obeyed)
    await _save(store, after, "nothing was reset: {}. Look at it again, and repeat")
    return f"Before:\n{text}\nForgotten: the scope starts at its start_at the next time. {_FENCED}"


async def _before(
    store: CheckpointStore, scope: str, now: datetime
) -> tuple[Checkpoint | None, str, int | None]:
    """The scope's checkpoint, its text, and the epoch that fences the scope's current owner.

    The epoch is ``None`` if the record cannot be read: only the clock's seconds are surely greater.
    """
    try:
        found = await store.load(scope)
    except CheckpointCorrupt as error:
        return None, f"(unreadable) {error}\n", None
    if found is None or found.is_reset:
        # A daemon that has not saved anything yet has epoch 1.
        return None, "(nothing)\n", found.epoch + 1 if found else 2
    return found, details(found, now), found.epoch + 1


async def _record(store: CheckpointStore, scope: str) -> dict[str, Any] | None:
    """The record as it is stored; ``None`` if there is none, or it cannot be read."""
    with suppress(CheckpointCorrupt):
        if (found := await store.load(scope)) is not None and not found.is_reset:
            return found.to_document()
    return None


async def _save(store: CheckpointStore, checkpoint: Checkpoint, refusal: str) -> None:
    try:
        await store.save(checkpoint)
    except CheckpointFenced as error:
        refuse(f"scope {checkpoint.scope!r}", refusal.format(error))
