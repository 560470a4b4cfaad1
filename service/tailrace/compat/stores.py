"""Whether the MongoDB store can be here: positions, leases and dead letters."""

from dataclasses import replace
from datetime import UTC, datetime

from tailrace.compat.answer import Facts, NegativeAnswer
from tailrace.compat.site import Site, read
from tailrace.errors import CheckpointFenced
from tailrace.model import Checkpoint
from tailrace.model.dead_letter import DeadLetter
from tailrace.model.lease import Lease
from tailrace.stores.mongodb import open_store

_SCOPE = "compat"


async def checkpoints(site: Site) -> Facts:
    """Conditional writes with the write concern majority, and linearizable reads."""
    async with open_store(site.driver, database=site.database) as store:
        await store.checkpoints.claim(_SCOPE, 2)
        checkpoint = replace(Checkpoint.nowhere(_SCOPE), epoch=2, sequence=1)
        await store.checkpoints.save(checkpoint)
        try:
            await store.checkpoints.save(replace(checkpoint, epoch=1, sequence=9))
        except CheckpointFenced:
            pass
        else:
            raise NegativeAnswer("a position of an earlier owner was saved")
        stored = await store.checkpoints.load(_SCOPE)
        if stored is None or stored.version != checkpoint.version:
            raise NegativeAnswer("a saved position was not read")
    return {}


async def leases(site: Site) -> Facts:
    """Only one owner gets a lease, by the server's clock."""
    async with open_store(site.driver, database=site.database) as store:
        await store.leases.prepare([_SCOPE])
        seen = Lease(_SCOPE)
        won = [await store.leases.acquire(seen, owner, 1, 30) for owner in ("one", "two")]
        renewed = await store.leases.renew("one", [_SCOPE], 30)
        await store.leases.release(_SCOPE, "one", 1)
        released = Lease(_SCOPE, epoch=1)
        won.append(await store.leases.acquire(released, "two", 2, 30))
    if (won, renewed) != ([True, False, True], 1):
        raise NegativeAnswer("a lease had two owners, or could not be renewed or handed over")
    return {}


async def dead_letters(site: Site) -> Facts:
    """With the unique index that keeps late writes of an earlier owner out."""
    async with site.following("letters") as stream:
        await site.insert("letters", {"_id": 1})
        event = (await read(stream, 1))[0]
    now = datetime.now(UTC)
    letter = DeadLetter(_SCOPE, "none", event.token.digest, event.key, event.raw, "", 1, now)
    async with open_store(site.driver, database=site.database) as store:
        await store.checkpoints.claim(_SCOPE, 3)
        await store.dead_letters.claim(_SCOPE, 3)
        await store.dead_letters.add(letter, 3)
        if sum((await store.dead_letters.count()).values()) != 1:
            raise NegativeAnswer("a stored dead letter was not read")
    return {}
