"""Tries what ``run`` would do, and leaves no trace: the store, the handlers, the streams.

It also reports what the streams cost the server.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import anyio
from anyio import to_thread

from tailrace import cost
from tailrace.assembly import followed_by, requires_images, stream_options, target
from tailrace.config.scopes import ScopeSettings
from tailrace.config.settings import Settings
from tailrace.config.store import MongodbStoreSettings, SqliteStoreSettings
from tailrace.config.subscriptions import Beginning, beginnings
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
from tailrace.handlers.probe import probe_handler
from tailrace.snapshot.followed import examine, probe_read
from tailrace.snapshot.plan import count_documents
from tailrace.source_settings import require_readable
from tailrace.stores.mongodb import probe_collections
from tailrace.stores.sqlite_schema import probe_file
from tailrace.stream import ChangeStream, ServerClock
from tailrace.stream.resumable import UNAUTHORIZED

MOST_SECONDS = 30.0
"""How long each probe may take. A handler's start has no limit of its own."""


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

    async def report_of(what: str, probe: Awaitable[str]) -> None:
        try:
            with anyio.fail_after(MOST_SECONDS):
                report(f"{what}: {await probe}")
        except ConfigurationError as error:
            problems.extend(error.problems)
        except TailraceError as error:
            problems.append(Problem(what, describe(error)))
        except TimeoutError:
            problems.append(Problem(what, f"the probe has not ended after {MOST_SECONDS:g} s"))

    async with factory(uri, 1) as driver:
        try:
            await require_readable(settings, ClusterWatch(driver, ServerClock()).time)
        except ConfigurationError as error:
            problems.extend(error.problems)
        await report_of("store", _try_store(settings, driver))
        for name, handler in settings.handlers.items():
            scopes = followed_by(settings).get(name, [])
            await report_of(f"handler {name}", probe_handler(name, handler, scopes, str(cluster)))
        for index, scope in enumerate(settings.scopes):
            try:
                begins = beginnings(settings, scope)
                async for line in _followed(driver, scope, begins):
                    report(f"scope {scope.name}: {line}")
            except (DriverError, ScopeHalted) as error:
                problems.append(Problem(f"scopes[{index}]", f"{scope.name}: {describe(error)}"))
            else:
                problems += await _unreadable(driver, scope, begins)
            for line in cost.of_options(scope):
                report(f"scope {scope.name}: {line}")
        for line in (*cost.of_streams(settings.scopes), *cost.of_catch_up(settings)):
            report(f"cost: {line}")
        if not problems:
            async for line in cost.of_images(driver, settings.scopes):
                report(f"cost: {line}")
    return problems


async def _followed(
    driver: CommandDriver, scope: ScopeSettings, begins: Mapping[str, Beginning]
) -> AsyncIterator[str]:
    """What is known of a scope, in lines. Raises what would halt it."""
    followed = target(scope)
    async with ChangeStream(driver, followed, stream_options(scope)):
        yield f"{followed} can be followed"
    examined = await examine(driver, followed, images=requires_images(scope))
    if examined.missing:
        yield f"warning: {examined.missing}"
    try:
        documents = await count_documents(driver, followed)
        for mode, names in _by_mode(begins).items():
            whom = "" if len(names) == len(begins) else f"handlers {', '.join(names)}: "
            yield f"{whom}{_before(documents, mode)}"
    except CommandFailed as error:
        if error.code != UNAUTHORIZED or _by_mode(begins).keys() != {"never"}:
            raise
        yield "the user may not list collections: existing documents are not counted"
    if examined.refusal:
        raise ScopeHalted(examined.refusal)


async def _unreadable(
    driver: CommandDriver, scope: ScopeSettings, begins: Mapping[str, Beginning]
) -> list[Problem]:
    """What hinders the snapshots with which handlers begin."""
    wanted = {
        each.snapshot_path: each.snapshot.read_preference
        for each in begins.values()
        if each.snapshot.mode == "initial"
    }
    problems = []
    for path, read_preference in wanted.items():
        try:
            await probe_read(driver, target(scope), read_preference)
        except (DriverError, ScopeHalted) as error:
            problems.append(Problem(path, f"{scope.name}: {describe(error)}"))
    return problems


def _by_mode(begins: Mapping[str, Beginning]) -> Mapping[str, list[str]]:
    """The handlers by the mode of the snapshot with which they begin."""
    found: dict[str, list[str]] = {}
    for name, each in begins.items():
        found.setdefault(each.snapshot.mode, []).append(name)
    return found


async def _try_store(settings: Settings, driver: CommandDriver) -> str:
    match settings.store:
        case SqliteStoreSettings(path=path):
            return await to_thread.run_sync(probe_file, path)
        case MongodbStoreSettings(database=database):
            return await probe_collections(driver, database)
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
