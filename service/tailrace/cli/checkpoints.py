"""``tailrace checkpoints``: lists, shows and resets the stored positions.

``reset`` is for a record that cannot be read; a position is chosen with ``tailrace scopes seek``.
It leaves a record that has only the next epoch, so the store refuses further saves of a running
daemon.

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
from tailrace.cli.arguments import add_config, read_settings, refuse
from tailrace.cli.checkpoint_text import details, history, table
from tailrace.cli.scope_leases import follower
from tailrace.cli.waiting_bar import waiting_bar
from tailrace.engine.ports import CheckpointStore, DesiredStateStore
from tailrace.errors import CheckpointCorrupt, CheckpointFenced
from tailrace.model import Checkpoint
from tailrace.model.record_codec import LARGEST

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
    reset = verbs.add_parser("reset", help="delete a scope's position: it starts at its start_at")
    for verb in (show, reset):
        verb.add_argument("scope", help="the scope's name")
    reset.add_argument("--dry-run", action="store_true", help="say what would change")
    reset.add_argument("--json", action="store_true", help="the records before and after")
    for verb in verbs.choices.values():
        add_config(verb)


def run(options: argparse.Namespace) -> int:
    """Runs the verb, and prints the result."""
    with waiting_bar("asking the store", 30):
        text = anyio.run(_answer, options)
    print(text.rstrip())
    return 0


async def _answer(options: argparse.Namespace) -> str:
    now, settings = datetime.now(UTC), read_settings(options)
    async with open_store(settings) as opened:
        store = opened.checkpoints
        if options.verb == "list":
            return await list_positions(store, now, options.json)
        scope = options.scope
        if options.verb == "show":
            return await show_position(store, scope, now, options.json)
        followed = await follower(opened, settings, scope)
        before = await _record(store, scope) if options.json else None
        text = await reset_position(store, opened.desired_states, scope, now, options.dry_run)
        if options.json:
            after = await _record(store, scope)
            records = {"dry_run": options.dry_run, "before": before, "after": after}
            return json.dumps({"message": text + followed, **records}, indent=2)
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


async def reset_position(
    store: CheckpointStore,
    states: DesiredStateStore,
    scope: str,
    now: datetime,
    dry_run: bool = False,
) -> str:
    """Removes the scope's checkpoint, readable or not, so that it starts at its ``start_at``.

    What is wanted of its snapshots and replays goes, too: the checkpoint said how far they were.
    """
    desired = await states.load(scope)
    generation = desired.generation if desired is not None else 0  # a reset replaces a seek
    before, text, epoch = await _before(store, scope, now)
    if before is None and epoch is not None:
        refuse(f"scope {scope!r}", _UNKNOWN)
    if dry_run:
        return f"Before:\n{text}\n{_DRY_RUN}"
    if epoch is None or epoch > LARGEST:
        await store.reset(scope)
        epoch = int(now.timestamp())
    nowhere = Checkpoint.nowhere(scope)
    after = replace(nowhere, epoch=epoch, sequence=1, saved_at=now, observed_generation=generation)
    await _save(store, after, "nothing was reset: {}. Look at it again, and repeat")
    if desired is not None and desired.has_requests:
        await states.write(desired.without_requests())
    return f"Before:\n{text}\nForgotten: the scope starts at its start_at the next time. {_FENCED}"


async def _before(
    store: CheckpointStore, scope: str, now: datetime
) -> tuple[Checkpoint | None, str, int | None]:
    """The scope's checkpoint, its text, and the epoch that fences the scope's current owner.

    The epoch is ``None`` if the record cannot be read: only the clock's seconds are surely greater.
    """
    try:
        checkpoint = await store.load(scope)
    except CheckpointCorrupt as error:
        return None, f"(unreadable) {error}\n", None
    if checkpoint is None or checkpoint.is_reset:
        # A daemon that has not saved anything yet has epoch 1.
        return None, "(nothing)\n", checkpoint.epoch + 1 if checkpoint else 2
    return checkpoint, details(checkpoint, now), checkpoint.epoch + 1


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
