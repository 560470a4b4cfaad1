"""What the server is, and its limits."""

from collections.abc import Awaitable, Callable
from typing import Any

from tailrace.compat.answer import Facts, NegativeAnswer, not_here
from tailrace.compat.site import Site
from tailrace.engine import ClusterWatch
from tailrace.stream import ServerClock

_LIMITS = ("maxBsonObjectSize", "maxMessageSizeBytes", "maxWriteBatchSize")


async def version(site: Site) -> Facts:
    build = await site.driver.run("admin", {"buildInfo": 1})
    enterprise = "enterprise" in build.get("modules", ())
    hello = site.hello
    kind = "load balanced" if "serviceId" in hello else "replica set"
    return {
        "version": str(build.get("version", "")),
        "wire_version": int(hello.get("maxWireVersion", 0)),
        "topology": "sharded" if site.sharded else kind,
        "members": len(hello.get("hosts", ())),
        "edition": "enterprise" if enterprise else "community",
    }


async def cluster_identity(site: Site) -> Facts:
    if not site.identity.unique:
        raise NegativeAnswer("the cluster's id cannot be read: see docs/servers.md")
    return {}


async def oplog_window(site: Site) -> Facts:
    """As the daemon reads it for its metric."""
    watch = ClusterWatch(site.driver, ServerClock())
    await watch.ask_oplog()
    seconds = watch.document()["oplog_window_seconds"]
    if seconds is None:
        raise not_here("the oplog cannot be read: the role clusterMonitor, and no mongos")
    return {"seconds": seconds}


async def limits(site: Site) -> Facts:
    """Of documents, messages and writes; no sessions: no streams."""
    minutes = site.hello.get("logicalSessionTimeoutMinutes")
    if minutes is None:
        raise NegativeAnswer("the server has no sessions")
    return {name: site.hello.get(name) for name in _LIMITS} | {"session_minutes": minutes}


def fact(name: str, *path: str | int, **command: Any) -> Callable[[Site], Awaitable[Facts]]:
    """Asks for one value of the reply to a command on ``admin``; no scope depends on it."""

    async def ask(site: Site) -> Facts:
        value: Any = await site.driver.run("admin", command)
        try:
            for step in path:
                value = value[step]
        except LookupError:
            raise not_here("the server does not tell it") from None
        return {name: value}

    return ask
