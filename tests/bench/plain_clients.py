"""Clients without Tailrace: they get BSON events in memory, convert them and send them.

``python -m tests.bench.plain_clients NAME CONVERTER HANDLER DOCUMENT_BYTES WARM REPLIES`` prints
the CPU microseconds for an event. The converter is ``json_util``, PyMongo's own, or ``orjson``,
which a user would have to write and which knows only the types of these events. The address and
the names are those of the handler's configuration. Each client does what its documentation
recommends for throughput, in batches of 1,000 events.
"""

import asyncio
import hashlib
import hmac
import json
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument

from tests.bench import stock
from tests.bench.converters import CONVERTERS, Json, debezium, native
from tests.scripted import wire

Events = Sequence[bytes]
Send = Callable[[Events], Awaitable[None]]
"""Converts and sends a batch; returns when the server has confirmed it."""

REPLY_EVENTS = 1000
HTTP_AT_ONCE = 64


# --- clients -----------------------------------------------------------------------------------


async def postgresql(handler: Mapping[str, Any], to_json: Json) -> Send:
    """One upsert and one delete for a batch, with binary arrays."""
    from psycopg import AsyncConnection

    connection = await AsyncConnection.connect(_text(handler["dsn"]))
    await connection.execute(
        "CREATE TABLE plain (key text PRIMARY KEY, document jsonb, cluster_time timestamptz)"
    )
    await connection.commit()
    upsert = """
        INSERT INTO plain SELECT * FROM unnest(%b::text[], %b::text[]::jsonb[], %b::timestamptz[])
        ON CONFLICT (key) DO UPDATE SET document = excluded.document,
        cluster_time = excluded.cluster_time
    """

    async def send(events: Events) -> None:
        latest: dict[str, tuple[str | None, datetime]] = {}
        for raw in events:
            event = bson.decode(raw)
            document = event.get("fullDocument")
            key = to_json(event["documentKey"]).decode()
            text = None if document is None else to_json(document).decode()
            latest[key] = text, event["clusterTime"].as_datetime()
        rows = [(key, text, at) for key, (text, at) in latest.items() if text is not None]
        gone = [key for key, (text, _) in latest.items() if text is None]
        async with connection.cursor(binary=True) as cursor:
            await cursor.execute(upsert, list(map(list, zip(*rows, strict=True))))
            await cursor.execute("DELETE FROM plain WHERE key = ANY(%b::text[])", [gone])
        await connection.commit()

    return send


async def mongodb(handler: Mapping[str, Any], to_json: Json) -> Send:
    """An ordered bulk write in a transaction."""
    from pymongo import AsyncMongoClient, DeleteOne, ReplaceOne

    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(_text(handler["uri"]))
    collection = client[handler["database"]][f"plain{time.time_ns()}"]
    await collection.insert_one({})

    async def send(events: Events) -> None:
        writes: list[Any] = []
        for raw in events:
            event = RawBSONDocument(raw)
            one = {"_id": event["documentKey"]["_id"]}
            document = event.get("fullDocument")
            gone = document is None
            writes.append(DeleteOne(one) if gone else ReplaceOne(one, document, upsert=True))
        async with client.start_session() as session, await session.start_transaction():
            await collection.bulk_write(writes, session=session)

    return send


def kafka(convert: Callable[[bytes, Json], tuple[bytes, bytes]], *, once: bool) -> Any:
    """Fills and flushes in one thread; with ``once`` in a transaction."""

    async def connected(handler: Mapping[str, Any], to_json: Json) -> Send:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient, NewTopic

        servers = {
            "bootstrap.servers": handler["bootstrap_servers"],
            "security.protocol": handler["security_protocol"],
            "sasl.mechanism": handler["sasl_mechanism"],
            "sasl.username": handler["username"],
            "sasl.password": _text(handler["password"]),
        }
        topic = f"plain{time.time_ns()}"
        admin = AdminClient(servers)
        for made in admin.create_topics([NewTopic(topic, 1, 1)]).values():
            made.result()
        more = {"transactional.id": topic} if once else {"enable.idempotence": True}
        producer = Producer({**servers, **more, "partitioner": "murmur2_random", "linger.ms": 5})
        if once:
            producer.init_transactions()

        def fill(events: Events) -> None:
            if once:
                producer.begin_transaction()
            for raw in events:
                key, value = convert(raw, to_json)
                producer.produce(topic, value, key)
            if once:
                producer.commit_transaction()
            producer.flush()

        async def send(events: Events) -> None:
            await asyncio.to_thread(fill, events)

        return send

    return connected


async def nats(handler: Mapping[str, Any], to_json: Json) -> Send:
    """Publishes asynchronously, with ids, and awaits all acknowledgements of the batch."""
    import nats as client

    connection = await client.connect(list(handler["servers"]))
    stream = connection.jetstream(publish_async_max_pending=4000)
    name = f"plain{time.time_ns()}"
    await stream.add_stream(name=name, subjects=[f"{name}.>"])

    async def send(events: Events) -> None:
        acks = []
        for raw in events:
            event = bson.decode(raw)
            ids = {"Nats-Msg-Id": event["_id"]["_data"]}
            acks.append(await stream.publish_async(f"{name}.orders", to_json(event), headers=ids))
        await asyncio.gather(*acks)

    return send


async def redis(handler: Mapping[str, Any], to_json: Json) -> Send:
    """A pipeline of XADD."""
    from redis.asyncio import Redis

    client = Redis.from_url(_text(handler["url"]))
    stream = f"plain{time.time_ns()}"

    async def send(events: Events) -> None:
        async with client.pipeline(transaction=False) as pipeline:
            for raw in events:
                key, value = native(raw, to_json)
                pipeline.xadd(stream, {"key": key, "value": value}, maxlen=100_000)
            await pipeline.execute()

    return send


def http(events_of_a_request: int) -> Any:
    """Signed requests, 64 at once, or one after another with several events each."""

    async def connected(handler: Mapping[str, Any], to_json: Json) -> Send:
        import aiohttp

        session = aiohttp.ClientSession()
        secret = b64decode(_text(handler["secret"]).removeprefix("whsec_"))
        at_once = asyncio.Semaphore(HTTP_AT_ONCE if events_of_a_request == 1 else 1)

        async def post(identity: str, body: bytes) -> None:
            at = str(int(time.time()))
            signed = hmac.digest(secret, f"{identity}.{at}.".encode() + body, hashlib.sha256)
            headers = {
                "webhook-id": identity,
                "webhook-timestamp": at,
                "webhook-signature": f"v1,{b64encode(signed).decode()}",
                "content-type": "application/json",
            }
            async with at_once, session.post(handler["url"], data=body, headers=headers) as reply:
                reply.raise_for_status()

        def message(raw: bytes) -> tuple[str, bytes]:
            event = bson.decode(raw)
            envelope = {
                "specversion": "1.0",
                "id": event["_id"]["_data"],
                "source": "/plain",
                "type": f"com.mongodb.change.{event['operationType']}",
                "subject": to_json(event["documentKey"]).decode(),
                "data": event,
            }
            return event["_id"]["_data"], to_json(envelope)

        async def send(events: Events) -> None:
            made = [message(raw) for raw in events]
            if events_of_a_request == 1:
                await asyncio.gather(*(post(identity, body) for identity, body in made))
                return
            for first in range(0, len(made), events_of_a_request):
                part = made[first : first + events_of_a_request]
                await post(part[0][0], b"[%b]" % b",".join(body for _, body in part))

        return send

    return connected


CLIENTS: Mapping[str, Callable[[Mapping[str, Any], Json], Awaitable[Send]]] = {
    "postgresql": postgresql,
    "mongodb": mongodb,
    "kafka": kafka(native, once=False),
    "kafka-once": kafka(native, once=True),
    "kafka-debezium": kafka(debezium, once=False),
    "nats": nats,
    "redis": redis,
    "http": http(1),
    "http-100": http(100),
}


def _text(secret: Any) -> str:
    """A value of the configuration that may be in a file."""
    if isinstance(secret, Mapping):
        return Path(secret["file"]).read_text().strip()
    return str(secret)


async def measured(
    name: str, to_json: Json, handler: Mapping[str, Any], size: int, warm: int, many: int
) -> float:
    """CPU microseconds for an event."""
    replies = [
        [wire.in_order(stock.event(number, size)) for number in range(first, first + REPLY_EVENTS)]
        for first in range(0, (warm + many) * REPLY_EVENTS, REPLY_EVENTS)
    ]
    send = await CLIENTS[name](handler, to_json)
    for events in replies[:warm]:
        await send(events)
    began = time.process_time()
    for events in replies[warm:]:
        await send(events)
    return (time.process_time() - began) / (many * REPLY_EVENTS) * 1e6


def main() -> None:
    """Runs the client that the arguments name."""
    name, converter, handler, *numbers = sys.argv[1:]
    to_json = CONVERTERS[converter]
    print(asyncio.run(measured(name, to_json, json.loads(handler), *map(int, numbers))))


if __name__ == "__main__":
    main()
