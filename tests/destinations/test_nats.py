"""What is special about NATS: subjects, acknowledgements, ids, the limits of streams, logins."""

import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bson
import pytest
import trustme
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import DiscardPolicy, StreamConfig

from tailrace.destinations.nats.publisher import Publisher
from tailrace.engine import Handler
from tailrace.errors import ConfigurationError, PermanentError, Refused, Unavailable
from tailrace.event import ChangeEvent
from tailrace.model import Scope
from tailrace.testing import Changes
from tests.destinations.calling import attempted, opened, send
from tests.destinations.nats import MAX_PAYLOAD, Nats, NatsServer
from tests.destinations.nats_operator import operator
from tests.guards import against_hanging
from tests.handlers import deliver

NAMES = ["a.b", "a%2Eb", "a b", "*", ">", "ä\n", "x" * 200]


@pytest.fixture
def nats(made: Callable[..., Any]) -> Any:
    return made("nats")


def made_stream(nats: Nats, **limits: Any) -> dict[str, Any]:
    """Creates the stream; returns the configuration of a handler that does not."""

    async def create(client: Client) -> None:
        config = StreamConfig(name=nats.name, subjects=[f"{nats.name}.>"], **limits)
        await client.jetstream().add_stream(config)

    nats.server.ask(create)
    return {**nats.handler, "create_stream": False}


async def test_every_name_has_a_subject_of_its_own_which_a_consumer_can_choose(
    nats: Nats, changes: Changes
) -> None:
    wide = Scope("orders", "shop")
    async with opened(nats.handler, wide) as handler:
        for name in NAMES:
            await send(handler, changes.elsewhere(name).insert({"_id": name}))
    found = {each.subject: each.headers["Tailrace-Key"] for each in nats.messages}
    assert len(found) == len(NAMES)
    assert all(re.fullmatch(rf"{nats.name}\.shop\.[\w%~-]+", subject) for subject in found)
    assert found[f"{nats.name}.shop.a%2Eb"] == '{"_id":"a.b"}'


async def test_a_message_has_headers_and_a_deleted_document_has_an_empty_one(
    nats: Nats, changes: Changes
) -> None:
    events = changes.insert({"_id": 1, "n": 1}), changes.delete(1), changes.drop()
    async with opened({**nats.handler, "envelope": "document"}) as handler:
        await send(handler, *events)
    inserted, deleted = nats.messages  # a drop has no form in this envelope
    assert (inserted.data, deleted.data) == (b'{"_id":1,"n":1}', b"")
    assert deleted.headers == {
        "Nats-Msg-Id": events[1].id["_data"],
        "Nats-Expected-Stream": nats.name,
        "Tailrace-Operation": "delete",
        "Tailrace-Namespace": "shop.orders",
        "Tailrace-Key": '{"_id":{"$numberInt":"1"}}',
    }


async def test_the_trace_of_a_document_is_a_header(nats: Nats, changes: Changes) -> None:
    scope = Scope("orders", "shop", "orders", trace="trace")
    traceparent = f"00-{'a' * 32}-{'b' * 16}-01"
    async with opened(nats.handler, scope) as handler:
        await send(handler, changes.insert({"_id": 1, "trace": traceparent}))
        await send(handler, changes.insert({"_id": 2, "trace": "none"}))
    assert [each.headers.get("traceparent") for each in nats.messages] == [traceparent, None]


async def test_repeats_are_recognised_by_their_ids(nats: Nats, changes: Changes) -> None:
    events = [changes.insert({"_id": n}) for n in range(100)]
    async with opened(nats.handler) as handler:
        await deliver(handler, *events[:50])
        await deliver(handler, *events)
    assert [each.headers["Nats-Msg-Id"] for each in nats.messages] == [
        event.id["_data"] for event in events
    ]


async def test_acknowledgement_seconds_without_an_answer_are_an_outage(
    nats: Nats, changes: Changes
) -> None:
    """What the server has stored all the same is not stored twice."""
    async with opened({**nats.handler, "acknowledgement_seconds": 0.3}) as handler:
        await send(handler, changes.insert({"_id": 0}))
        nats.pause()
        events = [changes.insert({"_id": n}) for n in range(1, 1001)]
        with pytest.raises(Unavailable, match="not acknowledged 1000 of 1000 messages"):
            await deliver(handler, *events)
        nats.start()
        await deliver(handler, *events)
    assert len(nats.messages) == 1001


async def test_a_later_change_waits_until_an_earlier_one_of_its_document_is_stored(
    nats: Nats, changes: Changes
) -> None:
    """Otherwise its repeat would be dropped for its id, and the earlier one would be the last."""
    changes.insert({"_id": 1, "text": ""})
    given = made_stream(nats)
    async with opened(given) as handler:
        await _limit(nats, max_msg_size=8000)
        large = changes.update(1, {"text": "x" * 8000})
        events = large, changes.update(1, {"text": ""}), changes.insert({"_id": 2})
        with pytest.raises(PermanentError, match="message size exceeds maximum allowed"):
            await deliver(handler, *events)
        assert not nats.messages
        with pytest.raises(Refused, match="event 0: JetStream does not store"):
            await deliver(handler, large)
        await deliver(handler, *events[1:])
    assert len(nats.messages) == 2


@pytest.mark.parametrize("limit", [MAX_PAYLOAD, 8000])
async def test_a_message_that_is_too_large_is_refused_before_anything_is_published(
    nats: Nats, changes: Changes, limit: int
) -> None:
    given = made_stream(nats, max_msg_size=limit if limit < MAX_PAYLOAD else -1)
    async with opened(given) as handler:
        small, large = changes.insert({"_id": 1}), changes.insert({"_id": 2, "text": "x" * limit})
        with pytest.raises(Refused, match=rf"event 1: .* NATS takes {limit}") as refusal:
            await deliver(handler, small, large)
        assert list(refusal.value.reasons) == [1]
        assert not nats.messages
        await deliver(handler, small)
    assert len(nats.messages) == 1


async def test_a_long_key_is_sent_and_one_that_no_header_can_hold_is_refused(
    tmp_path: Path, changes: Changes
) -> None:
    """A resume token holds the key, too: its hash stands for it."""
    server = NatsServer(tmp_path, "max_payload: 4MB")
    try:
        nats = Nats(server, "app")
        long = [changes.insert({"_id": each * 25_000}) for each in "ab"]
        long = [_with_token(event, each * 50_000) for event, each in zip(long, "ab", strict=True)]
        large = changes.insert({"_id": "x" * 70_000})
        async with opened(nats.handler) as handler:
            await deliver(handler, *long)
            await deliver(handler, *long)
            with pytest.raises(Refused, match=r"event 1: the headers of its message") as refusal:
                await deliver(handler, long[0], large, long[1])
            assert list(refusal.value.reasons) == [1]
            await deliver(handler, changes.insert({"_id": "y" * 65_000}))
        keys = [each.headers["Tailrace-Key"] for each in nats.messages]
        assert [len(key) for key in keys] == [25_010, 25_010, 65_010]
    finally:
        server.close()


@pytest.mark.parametrize("is_noticed", [True, False])
async def test_a_connection_that_the_server_ended_is_replaced_without_an_outage(
    nats: Nats, changes: Changes, monkeypatch: pytest.MonkeyPatch, is_noticed: bool
) -> None:
    events = [changes.insert({"_id": n}) for n in range(2)]
    async with opened(nats.handler) as handler:
        await deliver(handler, events[0])
        nats.stop()
        nats.start()
        if not is_noticed:
            monkeypatch.setattr(Publisher, "is_lost", False)
        await deliver(handler, events[1])
    assert len(nats.messages) == 2


async def test_a_full_stream_and_one_that_is_gone_are_waited_for(
    nats: Nats, changes: Changes
) -> None:
    given = made_stream(nats, max_msgs=1, discard=DiscardPolicy.NEW)
    first, second = changes.insert({"_id": 1}), changes.insert({"_id": 2})
    async with opened(given) as handler:
        await deliver(handler, first)
        with pytest.raises(Unavailable, match="maximum messages exceeded"):
            await deliver(handler, second)
        nats.server.ask(lambda client: client.jetstream().delete_stream(nats.name))
        with pytest.raises(Unavailable, match="no stream takes the subject"):
            await deliver(handler, second)
        made_stream(nats)
        await deliver(handler, second)
    assert len(nats.messages) == 1


@pytest.mark.parametrize("answer", [b"", b"+OK", b'{"ok": true}'])
async def test_only_an_acknowledgement_of_a_stream_counts_as_one(
    nats: Nats, changes: Changes, answer: bytes
) -> None:
    """Any subscriber may answer a message, and stores nothing."""

    async def respond(message: Msg) -> None:
        await message.respond(answer)

    given = made_stream(nats)
    event = changes.insert({"_id": 1})
    async with opened(given) as handler:
        nats.server.ask(lambda client: client.jetstream().delete_stream(nats.name))
        other = Client()
        await other.connect(given["servers"])
        await other.subscribe(f"{nats.name}.>", cb=respond)
        await other.flush()
        with pytest.raises(Unavailable, match="no acknowledgement of JetStream"):
            await deliver(handler, event)
        await other.close()
        made_stream(nats)
        await deliver(handler, event)
    assert len(nats.messages) == 1


@pytest.mark.parametrize(
    ("more", "key", "message"),
    [
        ({}, "stream", "no stream is called '{name}': create it, or set create_stream: true"),
        ({"stream": None}, "subject", "no stream takes {name}.shop.orders: create one"),
        ({"subject": "other.{collection}"}, "subject", "takes {name}.>, but not other.orders"),
    ],
)
async def test_a_stream_that_is_missing_refuses_the_start_in_one_line(
    nats: Nats, more: dict[str, Any], key: str, message: str
) -> None:
    if "subject" in more:
        made_stream(nats)
    with pytest.raises(ConfigurationError) as refusal:
        async with opened({**nats.handler, "create_stream": False, **more}):
            pass
    (problem,) = refusal.value.problems
    assert problem.path == f"handlers.it.{key}"
    assert message.format(name=nats.name) in problem.message


async def test_a_probe_publishes_to_the_stream_without_storing_anything(nats: Nats) -> None:
    given = made_stream(nats)
    said = await attempted(given)
    assert f"takes {nats.name}.shop.orders" in said
    assert "lost at a power cut" in said
    assert not nats.messages


async def _limit(nats: Nats, **limits: Any) -> None:
    async def update(client: Client) -> None:
        jetstream = client.jetstream()
        config = (await jetstream.stream_info(nats.name)).config
        await jetstream.update_stream(config.evolve(**limits))

    nats.server.ask(update)


USERS = (
    'authorization {{ users: [{{user: "app", password: "{0}"{1}}}, {{user: "t", password: "t"}}] }}'
)


async def test_a_password_that_changes_is_read_again_and_missing_rights_are_told(
    tmp_path: Path, changes: Changes
) -> None:
    server = NatsServer(tmp_path)
    server.login = {"user": "t", "password": "t"}
    try:
        server.configure(USERS.format("old-password", ""))
        file = tmp_path / "password"
        file.write_text("old-password")
        login = {"user": "app", "password": {"file": str(file)}}
        async with opened({**Nats(server, "app").handler, **login}) as handler:
            await deliver(handler, changes.insert({"_id": 1}))
            server.configure(USERS.format("new-password", ""))
            event = changes.insert({"_id": 2})
            with pytest.raises(Unavailable, match=r"refuses the login: .* of handlers\.it"):
                await _keep_delivering(handler, event)
            file.write_text("new-password")
            await deliver(handler, event)
            rights = ', permissions: { publish: "$JS.>" }'
            server.configure(USERS.format("new-password", rights))
            event = changes.insert({"_id": 3})
            with pytest.raises(Unavailable, match=r"(?i)permissions violation for publish"):
                await _keep_delivering(handler, event)
        with pytest.raises(ConfigurationError, match=r"(?i)permissions violation for publish"):
            await attempted({**Nats(server, "app").handler, **login, "create_stream": False})
        assert [each.headers["Tailrace-Key"] for each in server.messages("app")][:2] == [
            '{"_id":{"$numberInt":"1"}}',
            '{"_id":{"$numberInt":"2"}}',
        ]
    finally:
        server.close()


async def test_ca_file_and_certificate_file_are_used_for_tls(
    tmp_path: Path, changes: Changes
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(ca := tmp_path / "ca.pem")
    for name in ("127.0.0.1", "client"):
        certificate = authority.issue_cert(name)
        certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / f"{name}.pem")
    pem = f'"{tmp_path}/127.0.0.1.pem"'
    server = NatsServer(tmp_path)
    try:
        server.stop()
        server.login = {"tls": _context(ca, tmp_path / "client.pem")}
        server.configure(
            f'tls {{ cert_file: {pem}, key_file: {pem}, ca_file: "{ca}", verify: true }}'
        )
        server.start()
        given = {**Nats(server, "app").handler, "servers": [f"tls://127.0.0.1:{server.port}"]}
        own = {"ca_file": str(ca), "certificate_file": str(tmp_path / "client.pem")}
        async with opened({**given, **own}) as handler:
            await deliver(handler, changes.insert({"_id": 1}))
        with pytest.raises(ConfigurationError, match="certificate verify failed"):
            await attempted(given)
        assert len(server.messages("app")) == 1
    finally:
        server.close()


async def test_credentials_file_is_the_login_where_an_operator_signs_users(
    tmp_path: Path, changes: Changes
) -> None:
    server = NatsServer(tmp_path)
    try:
        server.stop()
        file = tmp_path / "user.creds"
        server.login = {"user_credentials": str(file)}
        server.configure(operator(file))
        server.start()
        given = Nats(server, "app").handler
        async with opened({**given, "credentials_file": str(file)}) as handler:
            await deliver(handler, changes.insert({"_id": 1}))
        with pytest.raises(ConfigurationError, match=r"credentials_file of handlers\.it"):
            await attempted(given)
        assert len(server.messages("app")) == 1
    finally:
        server.close()


def _with_token(event: ChangeEvent, token: str) -> ChangeEvent:
    return ChangeEvent.from_document({**bson.decode(event.raw), "_id": {"_data": token}})


def _context(ca: Path, certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(certificate)
    return context


async def _keep_delivering(handler: Handler, event: ChangeEvent) -> None:
    """Until the server has read its new configuration, and has lost the connection with that."""
    with against_hanging():
        while True:
            try:
                await deliver(handler, event)
            except Unavailable as error:
                if "connection" not in str(error):
                    raise
