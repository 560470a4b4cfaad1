"""The next changes after a resume token, as a scope would read them. Nothing is written."""

from collections.abc import Callable

from bson.timestamp import Timestamp

from tailrace.assembly import stream_options, target
from tailrace.config.settings import Settings
from tailrace.config.subscriptions import start_point
from tailrace.drivers import DRIVERS, identify
from tailrace.errors import CommandFailed, StreamError
from tailrace.event import ChangeEvent
from tailrace.migrate.options import refuse
from tailrace.stream import ChangeStream
from tailrace.stream.server_clock import server_time


async def preview(settings: Settings, where: str, most: int, report: Callable[[str], None]) -> int:
    """Reports up to ``most`` changes after the start of the first scope; returns how many there
    are until now.

    Raises :class:`ConfigurationError`, about the file ``where``, if the server refuses the token.
    """
    uri = settings.mongodb.uri.get_secret_value()
    factory = DRIVERS[settings.mongodb.driver]
    await identify(factory, uri, settings.mongodb.connect_timeout_seconds)
    scope, shown = settings.scopes[0], 0
    async with factory(uri, 1) as driver:
        now = await server_time(driver)
        stream = ChangeStream(driver, target(scope), stream_options(scope), start_point(scope))
        try:
            async with stream:
                while shown < most:
                    batch = await stream.next_batch(wait=False)
                    for event in batch.events()[: most - shown]:
                        report(_line(event))
                        shown += 1
                    reached = batch.token.cluster_time if batch.token is not None else None
                    if stream.invalidated or _is_reached(now, reached):
                        break
        except (CommandFailed, StreamError) as error:
            refuse(
                where,
                f"the server refuses this position: {error}. The oplog may not reach back to it, "
                "or it is of another cluster or another stream",
            )
    return shown


def _is_reached(now: Timestamp | None, reached: Timestamp | None) -> bool:
    return now is None or (reached is not None and reached >= now)


def _line(event: ChangeEvent) -> str:
    """The operation, the namespace, the key, and the cluster time."""
    time = event.cluster_time
    when = f"{time.as_datetime():%Y-%m-%dT%H:%M:%SZ}.{time.inc}" if time is not None else "-"
    return "\t".join((event.operation_type, str(event.ns or "-"), event.key_text or "-", when))
