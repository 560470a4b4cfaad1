"""Tries what ``run`` would do, and leaves no trace: the store, the handlers, the streams.

It also reports what the streams cost the server.
"""

from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
from anyio import to_thread

from tailrace import cost
from tailrace.assembly import followed_by, requires_images, stream_options, target
from tailrace.config import Settings
from tailrace.config.scopes import ScopeSettings
from tailrace.config.store import MongodbStoreSettings, SqliteStoreSettings
from tailrace.drivers import DRIVERS, CommandDriver, identify
from tailrace.engine import ClusterWatch
from tailrace.errors import (
    CommandFailed,
    ConfigurationError,
    DriverError,
    Problem,
    ScopeHalted,
    TailraceError,
    describe,
)
from tailrace.handlers.trial import try_handler
from tailrace.snapshot.error_codes import UNAUTHORIZED
from tailrace.snapshot.followed import examine
from tailrace.snapshot.plan import count_documents
from tailrace.source_settings import require_readable
from tailrace.stores.mongodb import try_collections
from tailrace.stores.sqlite_schema import try_file
from tailrace.stream import ChangeStream, ServerClock

MOST_SECONDS = 30.0
"""How long each trial may take. A handler's start has no limit of its own."""


async def connect(settings: Settings, report: Callable[[str], None]) -> list[Problem]:
    """Tries each part and reports it in a line; returns the problems.

    Raises :class:`tailrace.errors.StartRefused`.
    """
    uri = settings.mongodb.uri.get_secret_value()
    factory = DRIVERS[settings.mongodb.driver]
    cluster = await identify(factory, uri, settings.mongodb.connect_timeout_seconds)
    report(f"connected: {cluster}")
    if cluster.doubt:
        report(f"connected: warning: {cluster.doubt}")
    problems: list[Problem] = []

    async def attempt(what: str, trial: Awaitable[str]) -> None:
        try:
            with anyio.fail_after(MOST_SECONDS):
                report(f"{what}: {await trial}")
        except ConfigurationError as error:
            problems.extend(error.problems)
        except TailraceError as error:
            problems.append(Problem(what, describe(error)))
        except TimeoutError:
            problems.append(Problem(what, f"the trial has not ended after {MOST_SECONDS:g} s"))

    async with factory(uri, 1) as driver:
        try:
            await require_readable(settings, ClusterWatch(driver, ServerClock()).time)
        except ConfigurationError as error:
            problems.extend(error.problems)
        await attempt("store", _try_store(settings, driver))
        for name, handler in settings.handlers.items():
            scopes = followed_by(settings).get(name, [])
            await attempt(f"handler {name}", try_handler(name, handler, scopes, str(cluster)))
        for index, scope in enumerate(settings.scopes):
            try:
                async for line in _followed(driver, scope):
                    report(f"scope {scope.name}: {line}")
            except (DriverError, ScopeHalted) as error:
                problems.append(Problem(f"scopes[{index}]", f"{scope.name}: {describe(error)}"))
            for line in cost.of_options(scope):
                report(f"scope {scope.name}: {line}")
        for line in cost.of_streams(settings.scopes):
            report(f"cost: {line}")
        if not problems:
            async for line in cost.of_images(driver, settings.scopes):
                report(f"cost: {line}")
    return problems


async def _followed(driver: CommandDriver, scope: ScopeSettings) -> AsyncIterator[str]:
    """What is known of a scope, in lines. Raises what would halt it."""
    followed = target(scope)
    async with ChangeStream(driver, followed, stream_options(scope)):
        yield f"{followed} can be followed"
    found = await examine(driver, followed, images=requires_images(scope))
    if found.missing:
        yield f"warning: {found.missing}"
    try:
        yield _before(await count_documents(driver, followed), scope.snapshot.mode)
    except CommandFailed as error:
        if error.code != UNAUTHORIZED or scope.snapshot.mode != "never":
            raise
        yield "the user may not list collections: existing documents are not counted"
    if found.refusal:
        raise ScopeHalted(found.refusal)


async def _try_store(settings: Settings, driver: CommandDriver) -> str:
    match settings.store:
        case SqliteStoreSettings(path=path):
            return await to_thread.run_sync(try_file, path)
        case MongodbStoreSettings(database=database):
            return await try_collections(driver, database)
        case _:
            return "in memory, so a restart begins without positions"


def _before(documents: int, mode: str) -> str:
    """Whether existing documents will be delivered."""
    if not documents:
        return "there are no documents yet"
    what = "are delivered at its first start (snapshot: initial)"
    if mode == "never":
        what = "are not delivered, only changes are (snapshot: never)"
    return f"about {documents} existing documents {what}"
