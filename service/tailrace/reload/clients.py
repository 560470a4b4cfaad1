"""The client of the source, which a reload may replace: with another user, password or driver.

Each scope keeps the client that it began with. The store and the questions of the process go to the
newest one. A former client is closed when no scope uses it and its last command has an answer.
"""

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio

from tailrace.assembly import stream_options, target
from tailrace.config.settings import MongodbSettings, Settings
from tailrace.config.store import MongodbStoreSettings
from tailrace.destination.keeper import Keeper, ManagedObject, keeper
from tailrace.drivers import DRIVERS, CommandDriver, files_of, identify
from tailrace.errors import (
    CommandFailed,
    ConfigurationError,
    DriverError,
    Problem,
    StartRefused,
    describe,
)
from tailrace.model.cluster import ClusterIdentity
from tailrace.stores.mongodb import probe_collections
from tailrace.stream import ChangeStream
from tailrace.stream.resumable import UNAUTHORIZED

_WAIT_SECONDS = 5.0
"""How long a reload looks for a server at the new URI, before it asks why there is none."""


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """The inputs that a client is made with. ``files``: a digest of the certificates in the URI."""

    driver: str
    uri: str = field(repr=False)
    files: str

    @classmethod
    def of(cls, settings: MongodbSettings) -> "ClientPlan":
        """The plan as it is now. Reads files. Raises :class:`ConfigurationError`."""
        uri, digest = settings.uri.get_secret_value(), sha256()
        for file in files_of(uri):
            try:
                digest.update(sha256(Path(file).read_bytes()).digest())
            except OSError as error:
                message = f"names the file {file!r}, which cannot be read: {error.strerror}"
                raise ConfigurationError(Problem("mongodb.uri", message)) from error
        return cls(settings.driver, uri, digest.hexdigest())


@dataclass(eq=False, slots=True)
class OpenClient:
    """A client that is open."""

    plan: ClientPlan
    managed: ManagedObject[CommandDriver]
    _commands: int = 0
    _leaving: bool = False

    @property
    def driver(self) -> CommandDriver:
        return self.managed.usable()

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        """Runs a command; the client is not closed before it has an answer."""
        self._commands += 1
        try:
            return await self.driver.run(database, command)
        finally:
            self._commands -= 1
            self._close_if_idle()

    def leave(self) -> None:
        """Lets it close."""
        self._leaving = True
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._leaving and not self._commands:
            self.managed.leave()


class Clients:
    """The clients of the source of one process. It runs commands with the one to use now.

    ``cluster``: the one that all of them reach. ``streams``: for how many streams each has
    connections.
    """

    def __init__(self, keeper: Keeper, cluster: ClusterIdentity, streams: int) -> None:
        self.cluster = cluster
        self.streams = streams
        self._keeper = keeper
        self._all: list[OpenClient] = []
        self._now: OpenClient | None = None

    @property
    def now(self) -> OpenClient:
        """The client to use now."""
        assert self._now is not None  # noqa: S101 - for the type checker
        return self._now

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        """As :meth:`tailrace.stream.CommandRunner.run`."""
        return await self.now.run(database, command)

    async def open(self, plan: ClientPlan) -> OpenClient:
        """A client, which connects when it is first used. :meth:`use` makes it the one to use."""
        create = partial(DRIVERS[plan.driver], plan.uri, self.streams)
        name, fields = "the client of mongodb.uri", {"client": plan.driver}
        managed = ManagedObject[CommandDriver](name, create, fields=fields)
        self._keeper.open(managed)
        await managed.opened()
        return OpenClient(plan, managed)

    async def open_instead(
        self, plan: ClientPlan, settings: Settings, scopes: Collection[str]
    ) -> OpenClient:
        """A client in the place of the one in use, after trying what the ``scopes`` need of it.

        Raises :class:`ConfigurationError` for another cluster, and :class:`StartRefused`.
        """
        cluster = await identify(DRIVERS[plan.driver], plan.uri, _WAIT_SECONDS)
        if not cluster.may_be(self.cluster):
            message = (
                f"is the cluster {cluster}, and this process follows {self.cluster}: only a "
                "restart of the process follows another one"
            )
            raise ConfigurationError(Problem("mongodb.uri", message))
        client = await self.open(plan)
        try:
            await _try_rights(client.driver, settings, scopes)
        except BaseException:
            await self.discard(client)
            raise
        return client

    async def discard(self, client: OpenClient) -> None:
        """Closes a client that was opened in vain."""
        with anyio.CancelScope(shield=True):  # bounded by the driver
            await client.managed.close()

    def use(self, client: OpenClient) -> None:
        """From now on, this is the client to use."""
        self._now = client
        self._all.append(client)

    def sweep(self, used: Collection[object]) -> None:
        """Lets the clients close that are neither the one to use nor ``used`` by a scope."""
        needed = {self._now, *used}
        for client in self._all:
            if client not in needed:
                client.leave()
        self._all = [client for client in self._all if client in needed]


@asynccontextmanager
async def source_clients(cluster: ClusterIdentity, streams: int) -> AsyncIterator[Clients]:
    """The clients, which are closed when the block ends."""
    async with keeper() as opened:
        yield Clients(opened, cluster, streams)


async def _try_rights(driver: CommandDriver, settings: Settings, scopes: Collection[str]) -> None:
    """Opens the stream of each of these scopes, and tries the store if it is on the server.

    Other failures than a missing right may be the scope's own, which the next run tells.
    """
    for scope in settings.scopes:
        try:
            if scope.name in scopes:
                async with ChangeStream(driver, target(scope), stream_options(scope)):
                    pass
        except DriverError as error:
            if isinstance(error, CommandFailed) and error.code == UNAUTHORIZED:
                message = f"mongodb.uri: its user may not follow scope {scope.name!r}"
                raise StartRefused(f"{message}: {describe(error)}") from error
    if isinstance(settings.store, MongodbStoreSettings):
        await probe_collections(driver, settings.store.database)
