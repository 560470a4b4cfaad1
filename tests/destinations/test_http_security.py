"""Signatures, secrets in files, TLS, proxies, and the probe of ``http``."""

import asyncio
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
import trustme

from tailrace.engine import Handler
from tailrace.errors import ConfigurationError, Unavailable
from tailrace.handlers.probe import probe_handler
from tests.destinations.http_endpoint import (
    SECRETS,
    Receiver,
    answer,
    event,
    hook,
    hooked,
    receiving,
    settings,
)
from tests.destinations.http_receiver import verified
from tests.handlers import deliver
from tests.machine import free_port


async def test_both_secrets_sign_and_a_changed_file_is_used(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRETS[0]}\n")
    async with hooked(secret=[SECRETS[1], {"file": str(file)}]) as (endpoint, handler):
        await deliver(handler, event())
        file.write_text(SECRETS[2])
        while not signed_with(endpoint, SECRETS[2]):
            await deliver(handler, event())
            await anyio.sleep(0.05)
    assert signed_with(endpoint, SECRETS[1])
    assert not signed_with(endpoint, SECRETS[0])
    first = endpoint.received[0]
    assert verified(first.request, first.body, SECRETS[0])
    assert first.headers["webhook-id"] == event().id["_data"]


def signed_with(endpoint: Receiver, secret: str) -> bool:
    return verified(endpoint.received[-1].request, endpoint.received[-1].body, secret)


async def deliver_on(handler: Handler) -> None:
    while True:
        await deliver(handler, event())
        await anyio.sleep(0.05)


async def test_a_secret_file_that_is_gone_is_an_outage(tmp_path: Path) -> None:
    file = tmp_path / "authorization"
    file.write_text("Bearer abc\n")
    async with hooked(headers={"Authorization": {"file": str(file)}}) as (endpoint, handler):
        await deliver(handler, event())
        file.unlink()
        with pytest.raises(Unavailable, match="cannot be read"):
            await deliver_on(handler)
    assert endpoint.received[0].headers["authorization"] == "Bearer abc"


@dataclass(frozen=True, slots=True)
class Certificates:
    directory: Path
    ca: trustme.CA = field(default_factory=trustme.CA)

    def server(self) -> ssl.SSLContext:
        """Wants a client certificate of the same authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert("127.0.0.1").configure_cert(context)
        self.ca.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client(self) -> dict[str, str]:
        self.ca.cert_pem.write_to_path(self.directory / "ca")
        made = self.ca.issue_cert("tailrace@example")
        made.cert_chain_pems[0].write_to_path(self.directory / "certificate")
        made.private_key_pem.write_to_path(self.directory / "key")
        names = {"ca_file": "ca", "certificate_file": "certificate", "key_file": "key"}
        return {key: str(self.directory / name) for key, name in names.items()}


async def test_tls_with_an_own_authority_and_a_client_certificate(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    async with hooked(tls=made.server(), **made.client()) as (endpoint, handler):
        await deliver(handler, event())
        await deliver(handler, event())
    assert len(endpoint.received) == 2


async def test_a_server_that_refuses_the_client_certificate_is_an_outage(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    given = {"ca_file": made.client()["ca_file"]}
    async with hooked(tls=made.server(), **given) as (endpoint, handler):
        with pytest.raises(Unavailable, match="cannot be reached"):
            await deliver(handler, event())
    assert not endpoint.received


@pytest.mark.parametrize("from_environment", [False, True])
async def test_requests_go_through_the_proxy(
    from_environment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with receiving(answer(407), answer(204)) as proxy:
        address = proxy.url.replace("://", "://user:hunter2hunter2@")
        monkeypatch.setenv("http_proxy", address)
        monkeypatch.setenv("no_proxy", "direct.invalid")
        by = {"proxy_from_environment": True} if from_environment else {"proxy": address}
        async with hook("http://elsewhere.invalid/hook", **by) as handler:
            with pytest.raises(Unavailable, match="407"):
                await deliver(handler, event())
            await deliver(handler, event())
        assert proxy.received[1].request.raw_path == "http://elsewhere.invalid/hook"
        assert (
            proxy.received[1].headers["proxy-authorization"] == "Basic dXNlcjpodW50ZXIyaHVudGVyMg=="
        )
        with pytest.raises(ConfigurationError, match="accepts no connection"):
            async with hook("http://direct.invalid/", proxy_from_environment=True):
                pass
    assert len(proxy.received) == 2


async def test_tls_goes_through_a_tunnel_of_the_proxy(tmp_path: Path) -> None:
    made, port, asked = Certificates(tmp_path), free_port(), list[bytes]()

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")[0])
        if len(asked) == 1:
            writer.write(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            writer.close()
            return
        name = asked[-1].split()[1].rpartition(b":")[2].decode()
        up, down = await asyncio.open_connection("127.0.0.1", int(name))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(copied, reader, down)
            tasks.start_soon(copied, up, writer)

    async def copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while part := await reader.read(2**16):
            writer.write(part)
        writer.close()

    async with receiving(tls=made.server()) as endpoint:
        server = await asyncio.start_server(tunnel, "127.0.0.1", port)
        proxy = f"http://127.0.0.1:{port}"
        async with server, hook(endpoint.url, proxy=proxy, **made.client()) as handler:
            with pytest.raises(Unavailable, match="407"):
                await deliver(handler, event())
            await deliver(handler, event())
    assert endpoint.only.request.path == "/hook"
    assert asked[1] == b"CONNECT %b HTTP/1.1" % endpoint.url.split("/")[2].encode()


@pytest.mark.parametrize("secure", [False, True])
async def test_a_probe_connects_and_sends_no_request(secure: bool, tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    async with receiving(tls=made.server() if secure else None) as endpoint:
        message = await attempt(endpoint.url, **(made.client() if secure else {}))
        origin = endpoint.url.removesuffix("/hook")
        assert message == f"{origin} accepts connections; no request was sent"
        if secure:
            with pytest.raises(ConfigurationError, match="CERTIFICATE_VERIFY_FAILED"):
                await attempt(endpoint.url)
    with pytest.raises(ConfigurationError, match="accepts no connection"):
        await attempt(endpoint.url)
    assert not endpoint.received


async def attempt(url: str, **more: Any) -> str:
    return await probe_handler("hook", settings(url, **more), (), "cluster")
