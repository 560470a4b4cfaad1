"""Tries on the real server what ``run`` would do, and reports what that costs the server."""

from collections.abc import Callable

from tailrace import cost
from tailrace.config import Settings
from tailrace.drivers import DRIVERS, identify
from tailrace.errors import DriverError, Problem, describe
from tailrace.snapshot.plan import count_documents
from tailrace.stream import ChangeStream
from tailrace.stream.aggregate import stream_options, target


async def connect(settings: Settings, report: Callable[[str], None]) -> list[Problem]:
    """Opens each stream and reports the results; returns the problems of single scopes.

    Raises :class:`tailrace.errors.StartRefused`.
    """
    uri = settings.mongodb.uri.get_secret_value()
    factory = DRIVERS[settings.mongodb.driver]
    cluster = await identify(factory, uri, settings.mongodb.connect_timeout_seconds)
    report(f"connected: {cluster}")
    if cluster.doubt:
        report(f"connected: warning: {cluster.doubt}")
    problems = []
    async with factory(uri, 1) as driver:
        for index, scope in enumerate(settings.scopes):
            followed = target(scope)
            try:
                async with ChangeStream(driver, followed, stream_options(scope)):
                    report(f"scope {scope.name}: {followed} can be followed")
                documents = await count_documents(driver, followed)
                report(f"scope {scope.name}: {_before(documents, scope.snapshot.mode)}")
            except DriverError as error:
                problems.append(Problem(f"scopes[{index}]", f"{scope.name}: {describe(error)}"))
            for line in cost.of_options(scope):
                report(f"scope {scope.name}: {line}")
        for line in cost.of_streams(settings.scopes):
            report(f"cost: {line}")
        if not problems:
            async for line in cost.of_images(driver, settings.scopes):
                report(f"cost: {line}")
    return problems


def _before(documents: int, mode: str) -> str:
    """Whether existing documents will be handed over."""
    if not documents:
        return "there are no documents yet"
    what = "are handed over at its first start (snapshot: initial)"
    if mode == "never":
        what = "are not handed over, only changes are (snapshot: never)"
    return f"about {documents} existing documents {what}"
