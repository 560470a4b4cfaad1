"""Looks at the start whether JetStream has streams for the messages of a handler."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import structlog
from nats.aio.client import Client
from nats.js.api import StorageType, StreamConfig, StreamInfo
from nats.js.client import JetStreamContext
from nats.js.errors import APIError, NotFoundError

from tailrace.destinations.nats import NatsHandlerSettings
from tailrace.destinations.nats.answers import LARGEST_IN_FILE, NotStored
from tailrace.destinations.nats.publisher import Outgoing, Publisher, unavailable
from tailrace.destinations.nats.subjects import ANY, subjects_of, takes
from tailrace.errors import ConfigurationError, Problem, Unavailable
from tailrace.model import Scope

_WRONG_LAST_SEQUENCE = 10071
"""``JSStreamWrongLastSequenceErrF``."""
_NO_SEQUENCE = str(2**63 - 1)


async def require_stream(
    name: str, settings: NatsHandlerSettings, client: Client, scope: Scope
) -> int | None:
    """Requires a stream for the subjects of a scope, unless it is yet to be created.

    Returns the size of the largest message that it takes; ``None`` if it sets none. Raises
    :class:`ConfigurationError` for handler ``name``, and :class:`Unavailable`.
    """
    jetstream, subject = client.jetstream(), subjects_of(settings.subject, scope)
    with _answering(name):
        if settings.stream is None:
            info = await _any(name, jetstream, subject)
        else:
            named = await _named(name, settings, settings.stream, jetstream)
            if named is None:
                return None
            info = named
        _require_subject(name, info, subject)
    in_file = info.config.storage is StorageType.FILE
    sizes = [info.config.max_msg_size or 0, LARGEST_IN_FILE if in_file else 0]
    return min((size for size in sizes if size > 0), default=None)


async def create_stream(name: str, settings: NatsHandlerSettings, client: Client) -> None:
    """Creates the stream of the settings if it does not exist. Raises :class:`Unavailable`."""
    jetstream = client.jetstream()
    with _answering(name):
        if await _named(name, settings, settings.stream or "", jetstream) is None:
            everything = subjects_of(settings.subject, Scope(""))
            await jetstream.add_stream(StreamConfig(name=settings.stream, subjects=[everything]))
            log = structlog.get_logger().bind(handler=name)
            log.info("stream.created", stream=settings.stream)


async def _named(
    name: str, settings: NatsHandlerSettings, stream: str, jetstream: JetStreamContext
) -> StreamInfo | None:
    """The stream; ``None`` if it does not exist and is to be created."""
    try:
        return await jetstream.stream_info(stream)
    except NotFoundError:
        if settings.create_stream:
            return None
    message = f"no stream is called {stream!r}: create it, or set create_stream: true"
    raise ConfigurationError(Problem(f"handlers.{name}.stream", message))


@contextmanager
def _answering(name: str) -> Iterator[None]:
    try:
        with unavailable(f"handlers.{name}"):
            yield
    except APIError as error:
        message = error.description or "it does not answer; is it enabled?"
        raise Unavailable(f"JetStream: {message}") from error


async def _any(name: str, jetstream: JetStreamContext, subject: str) -> StreamInfo:
    try:
        return await jetstream.stream_info(await jetstream.find_stream_name_by_subject(subject))
    except NotFoundError:
        message = f"no stream takes {subject}: create one, or set stream and create_stream: true"
    raise ConfigurationError(Problem(f"handlers.{name}.subject", message))


def _require_subject(name: str, info: StreamInfo, subject: str) -> None:
    taken = info.config.subjects or []
    if not takes(taken, subject):
        message = f"the stream {info.config.name!r} takes {', '.join(taken) or 'no subject'}"
        raise ConfigurationError(
            Problem(
                f"handlers.{name}.subject", f"{message}, but not {subject}: add it to the stream"
            )
        )


async def accepts(publisher: Publisher, subject: str, headers: Mapping[str, str]) -> None:
    """Requires that a message to this subject may be published and would be stored.

    It is not stored, because it expects that the stream has had an impossible number of messages.
    Raises :class:`NotStored` and :class:`Unavailable`.
    """
    if ANY in subject.split("."):
        return  # a pattern
    expects = {**headers, "Nats-Expected-Last-Sequence": _NO_SEQUENCE}
    try:
        await publisher.publish([Outgoing(subject, b"", expects, None)])
    except NotStored as error:
        if error.code != _WRONG_LAST_SEQUENCE:
            raise Unavailable(str(error)) from error
