"""What lies between the service and the members: a proxy in front of each."""

from __future__ import annotations

from contextlib import ExitStack
from typing import NamedTuple, Self

from tests.faults.proxy import HOST, Proxy
from tests.mongod import ReplicaSet

_NOTICES_SOON = "heartbeatFrequencyMS=500&connectTimeoutMS=1000"


class Read(NamedTuple):
    """What the service reads from: a member and a cursor of it."""

    member: int
    cursor: int


class Network:
    """A client that is given :attr:`uri` meets every member behind its proxy; a context manager."""

    def __init__(self, server: ReplicaSet) -> None:
        self._server = server
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        ports = self._server.ports
        self._proxies = [self._stack.enter_context(Proxy(port)) for port in ports]
        names = {
            f"{HOST}:{port}": proxy.address
            for port, proxy in zip(ports, self._proxies, strict=True)
        }
        for proxy in self._proxies:
            proxy.rename(names)
        hosts = ",".join(names.values())
        self.uri = f"mongodb://{hosts}/?replicaSet=rs0&{_NOTICES_SOON}"
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def read(self) -> Read | None:
        """By the getMore that passed last."""
        reads = [
            (proxy.read.at, Read(member, proxy.read.cursor))
            for member, proxy in enumerate(self._proxies)
            if proxy.read is not None
        ]
        return max(reads)[1] if reads else None

    def cut(self) -> None:
        """Resets every connection."""
        for proxy in self._proxies:
            proxy.cut()

    def refuse(self) -> None:
        """Resets every connection, and takes none until healed."""
        for proxy in self._proxies:
            proxy.refuse()

    def silence(self) -> None:
        """Forwards nothing more on the connections that are there, and closes none."""
        for proxy in self._proxies:
            proxy.hold("present")

    def heal(self) -> None:
        """Forwards again."""
        for proxy in self._proxies:
            proxy.heal()
