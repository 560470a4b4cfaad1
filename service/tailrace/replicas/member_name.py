"""Refuses the start of a process whose name another live member has.

A crashed process under the same name is not alive: its heartbeat ends with its lease, and the start
waits for that. A process that is about to leave is waited for as well.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import anyio
import structlog

from tailrace.errors import LeaseError, StartRefused, describe
from tailrace.model.lease import Member
from tailrace.replicas.ports import LeaseStore
from tailrace.replicas.times import LeaseTimes


async def require_own_name(store: LeaseStore, me: Member, times: LeaseTimes) -> None:
    """Returns once no other live member has this name. Of two starts, the later one waits.

    Raises :class:`StartRefused` if the other one is still alive after a lease. Returns as well if
    the store cannot be read for that long: without it no scope can be followed.
    """
    try:
        await _until_own(store, me, times)
    except BaseException:
        with suppress(LeaseError), anyio.move_on_after(times.poll, shield=True):
            await store.leave(me.id)  # else the next start under this name waits for the heartbeat
        raise


async def _until_own(store: LeaseStore, me: Member, times: LeaseTimes) -> None:
    log = structlog.get_logger().bind(member=me.name)
    began, logged = anyio.current_time(), False
    joining = replace(me, leaving=True)  # it takes no scope yet
    while True:
        late = anyio.current_time() - began > times.lease + times.poll
        try:
            await store.renew(me.id, (), times.lease, joining)
            other = _senior(me, (await store.read()).members)
        except LeaseError as error:
            if late:
                log.warning("member.name_not_checked", error=describe(error))
                return
        else:
            if other is None:
                return
            if other.leaving:
                began = anyio.current_time()
            elif late:
                raise StartRefused(
                    f"replicas.name: another process is alive under the name {me.name!r}, on host "
                    f"{other.host}: give each process its own name, or stop the other one"
                )
            if not logged:
                log.info("member.waiting_for_name", host=other.host)
                logged = True
        await anyio.sleep(times.poll)


def _senior(me: Member, members: Sequence[Member]) -> Member | None:
    """A member of the same name that did not join after this one."""
    age = next((each.age_seconds for each in members if each.id == me.id), 0.0)
    same = (each for each in members if each.name == me.name and each.id != me.id)
    return next((each for each in same if each.age_seconds >= age), None)
