"""What is special about Redis: its errors, its connections, trimming, replaced processes."""

import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
import trustme
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSListener

from tailrace import Refused
from tailrace.engine import Handler
from tailrace.errors import BatchTooLarge, ConfigurationError, Fenced, Unavailable
from tailrace.event import ChangeEvent
from tailrace.testing import Changes
from tests.destinations.calling import attempted, opened, send
from tests.destinations.redis import Redis, RedisServer
from tests.handlers import OWNER, deliver

LATER = replace(OWNER, epoch=OWNER.epoch + 1)


@pytest.fixture
def stream(made: Callable[..., Any]) -> Any:
    return made("redis", log=True)


@pytest.fixture(params=[True, False], ids=["stream", "key"])
def either(made: Callable[..., Any], request: pytest.FixtureRequest) -> Any:
    return made("redis", log=request.param)


async def test_a_stream_has_the_parts_of_each_message_as_fields(
    stream: Redis, changes: Changes
) -> None:
    events = changes.insert({"_id": 1, "n": 1}), changes.delete(1), changes.drop()
    async with opened({**stream.handler, "envelope": "document"}) as handler:
        await send(handler, *events)
    assert stream.entries("shop.orders") == [
        {
            "id": event.id["_data"],
            "operation": event.operation_type,
            "namespace": "shop.orders",
            "key": '{"_id":{"$numberInt":"1"}}',
            **value,
        }
        for event, value in zip(events[:2], [{"value": '{"_id":1,"n":1}'}, {}], strict=True)
    ]  # a drop has no form in this envelope


async def test_max_length_trims_a_stream(stream: Redis, changes: Changes) -> None:
    async with opened({**stream.handler, "max_length": 100}) as handler:
        await deliver(handler, *[changes.insert({"_id": n}) for n in range(1000)])
    entries = stream.entries("shop.orders")
    assert 100 <= len(entries) < 300  # whole nodes of the stream are removed
    assert entries[-1]["key"] == '{"_id":{"$numberInt":"999"}}'


async def test_a_full_server_is_waited_for_and_nothing_of_the_batch_is_stored(
    either: Redis, changes: Changes
) -> None:
    events = [changes.insert({"_id": n}) for n in range(100)]
    with either.server.client() as client:
        client.config_set("maxmemory", "1mb")
        try:
            async with opened(either.handler) as handler:
                with pytest.raises(Unavailable, match="OutOfMemoryError"):
                    await deliver(handler, *events)
                assert not either.keys
                client.config_set("maxmemory", 0)
                await deliver(handler, *events)
        finally:
            client.config_set("maxmemory", 0)
    assert len(either.documents("shop", "orders")) == 100


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("replica-read-only yes", "replicaof 127.0.0.1 1"), "ReadOnlyError"),
        (("min-replicas-to-write 1",), "NOREPLICAS"),
    ],
)
async def test_a_server_that_takes_no_writes_now_is_waited_for(
    tmp_path: Path, changes: Changes, option: tuple[str, ...], message: str
) -> None:
    options = [word for each in option for word in f"--{each}".split()]
    server = RedisServer(tmp_path, *options)
    try:
        async with opened(Redis(server, "x").handler) as handler:
            with pytest.raises(Unavailable, match=message):
                await deliver(handler, changes.insert({"_id": 1}))
    finally:
        server.stop()


async def test_a_stream_whose_key_has_another_type_is_told_and_waited_for(
    stream: Redis, changes: Changes
) -> None:
    key = f"{stream.name}/shop.orders"
    with stream.server.client() as client:
        client.set(key, "text")
        async with opened(stream.handler) as handler:
            event = changes.insert({"_id": 1})
            with pytest.raises(Unavailable, match=f"'{key}' is not a stream: delete it, or choose"):
                await deliver(handler, event)
            client.delete(key)
            await deliver(handler, event)
    assert len(stream.entries("shop.orders")) == 1


async def test_answer_seconds_and_a_cancelled_call_close_the_connection(
    stream: Redis, changes: Changes
) -> None:
    """Later answers are never taken for those of an earlier call."""
    async with opened({**stream.handler, "answer_seconds": 0.3}) as handler:
        await deliver(handler, changes.insert({"_id": 0}))
        stream.pause()
        with pytest.raises(Unavailable, match="TimeoutError"):
            await deliver(handler, changes.insert({"_id": 1}))
        with anyio.move_on_after(0.1) as cancelled:
            await deliver(handler, changes.insert({"_id": 2}))
        assert cancelled.cancelled_caught
        stream.start()
        for n in range(3, 50):
            await deliver(handler, changes.insert({"_id": n}))
    entries = stream.entries("shop.orders")
    numbers = [json.loads(each["value"])["fullDocument"]["_id"] for each in entries]
    assert [n for n in numbers if n not in (1, 2)] == [0, *range(3, 50)]


async def test_a_password_that_changes_is_read_again_and_missing_rights_are_told(
    tmp_path: Path, changes: Changes
) -> None:
    server = RedisServer(tmp_path)
    file = tmp_path / "url"

    def let(password: str, rights: str = "+@all") -> None:
        with server.client() as client:
            client.execute_command("ACL", "SETUSER", "app", "reset", "on", f">{password}", "~*")
            client.execute_command("ACL", "SETUSER", "app", *rights.split())
            client.execute_command("CLIENT", "KILL", "USER", "app")

    def write(password: str) -> None:
        file.write_text(f"redis://app:{password}@127.0.0.1:{server.port}/0\n")

    try:
        let("old-password")
        write("old-password")
        async with opened({**Redis(server, "x").handler, "url": {"file": str(file)}}) as handler:
            await deliver(handler, changes.insert({"_id": 1}))
            let("new-password")
            event = changes.insert({"_id": 2})
            await _lost(handler, event)
            with pytest.raises(
                Unavailable, match=r"refuses the login .* correct handlers\.it\.url"
            ):
                await deliver(handler, event)
            write("new-password")
            await deliver(handler, event)
            let("new-password", "+@all -set -exec")
            await _lost(handler, event)
            with pytest.raises(Unavailable, match=r"or a command: correct handlers\.it\.url"):
                await deliver(handler, event)
    finally:
        server.stop()


async def test_a_url_of_rediss_is_tls_with_the_authority_that_it_names(
    stream: Redis, tmp_path: Path, changes: Changes
) -> None:
    """The server of the wheel has no TLS of its own: the test ends it in front of the server."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(ca := tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    async with _tls(stream.server.port, context) as port:
        url = f"rediss://127.0.0.1:{port}/0"
        trusting = {**stream.handler, "url": f"{url}?ssl_ca_certs={ca}"}
        async with opened(trusting) as handler:
            await deliver(handler, changes.insert({"_id": 1}))
        with pytest.raises(ConfigurationError, match="certificate verify failed"):
            await attempted({**stream.handler, "url": url})
    assert len(stream.entries("shop.orders")) == 1


@asynccontextmanager
async def _tls(port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
    """The port where TLS leads to a server without it."""

    async def forward(client: ByteStream) -> None:
        server = await anyio.connect_tcp("127.0.0.1", port)
        async with client, server, anyio.create_task_group() as both:
            both.start_soon(copy, client, server)
            await copy(server, client)
            both.cancel_scope.cancel()

    async def copy(one: ByteStream, other: ByteStream) -> None:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                await other.send(await one.receive())

    plain = await anyio.create_tcp_listener(local_host="127.0.0.1")
    listener = TLSListener(plain, context, standard_compatible=False)
    async with listener, anyio.create_task_group() as serving:
        serving.start_soon(listener.serve, forward)
        yield plain.extra(SocketAttribute.local_port)
        serving.cancel_scope.cancel()


async def _lost(handler: Handler, event: ChangeEvent) -> None:
    with pytest.raises(Unavailable, match="ConnectionError"):
        await deliver(handler, event)


async def test_a_process_that_was_replaced_writes_nothing_more(
    either: Redis, changes: Changes
) -> None:
    """Not even the batch that it was sending when it was suspended."""
    first, second, third = changes.insert({"_id": 1}), changes.update(1, {"n": 2}), changes.drop()
    async with opened(either.handler) as former, opened(either.handler) as later:
        await deliver(former, first)
        await deliver(later, first, second, identity=LATER)
        with pytest.raises(Fenced, match="a later epoch"):
            await deliver(former, first)
        with pytest.raises(Fenced, match="a later epoch"):
            await send(former, third)
    assert [each["n"] for each in either.documents("shop", "orders").values()] == [2]


async def test_a_probe_leaves_nothing_and_tells_what_a_start_would(either: Redis) -> None:
    message = "keys" if either.sent() is None else f"streams {either.name}/shop.orders"
    with either.server.client() as client:
        former = client.dbsize()
        assert message in await attempted(either.handler)
        assert client.dbsize() == former


async def test_a_server_of_a_cluster_refuses_the_start(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, "--cluster-enabled", "yes")
    try:
        with pytest.raises(ConfigurationError, match=r"handlers\.it\.url: Redis Cluster is not"):
            async with opened(Redis(server, "x").handler):
                pass
    finally:
        server.stop()


@pytest.mark.parametrize("limit", ["proto-max-bulk-len", "client-query-buffer-limit"])
async def test_a_value_over_a_limit_of_the_server_is_refused_alone(
    either: Redis, changes: Changes, limit: str
) -> None:
    """The server ends the connection, and says nothing about the event."""
    events = [changes.insert({"_id": n, "text": "x" * n}) for n in (1, 5 << 20, 2)]
    with either.server.client() as client:
        former = client.config_get(limit)[limit]
        client.config_set(limit, 1 << 20)
        try:
            async with opened(either.handler) as handler:
                with pytest.raises(BatchTooLarge):
                    await deliver(handler, *events)
                with pytest.raises(Refused, match=rf"over Redis's {limit} .1048576."):
                    await deliver(handler, events[1])
                await deliver(handler, events[0], events[2])
        finally:
            client.config_set(limit, former)
    assert len(either.documents("shop", "orders")) == 2
