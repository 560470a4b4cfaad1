"""No secret is disclosed: the tests search all output of the service for planted secrets."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote_plus
from urllib.request import Request, urlopen

from tests.daemon import Daemon, Make, until
from tests.mongod import ReplicaSet

PASSWORD = "plänted-pass/word@1"
TOKEN = "planted-token-0123456789"
IN_HANDLER = "planted-in-handler"
PLANTED = (PASSWORD, quote_plus(PASSWORD), "nted-pass", TOKEN, IN_HANDLER)

BROKEN = f"""\
import logging
import structlog

async def refuse(event):
    url = "amqp://me:{IN_HANDLER}@broker/"
    structlog.get_logger().warning("mine.failed", url=url)
    logging.getLogger("mine").error("cannot reach %s", url)
    headers = {{"Authorization": "Bearer {IN_HANDLER}", "X-Api-Key": "{IN_HANDLER}"}}
    structlog.get_logger().warning("mine.failed", headers=headers, password="{IN_HANDLER}")
    raise OSError(
        f"cannot reach {{url}}?api_token={IN_HANDLER} with {{headers}}, "
        "Authorization: Bearer {IN_HANDLER}, api_key={IN_HANDLER}, password={IN_HANDLER}, "
        "AWS_SECRET_ACCESS_KEY={IN_HANDLER}: {TOKEN} is refused"
    )
"""


def answers(run: Daemon, letter: str, at: str) -> Iterator[tuple[str, str]]:
    """What every operation of the OpenAPI document answers, to what it takes and to mistakes."""
    span = {"from": at, "handler": "lenient"}
    taken: dict[str, list[dict[str, Any]]] = {
        "seek": [{"at": at, "dry_run": True}, {"at": "odd"}, {"token": "odd"}, {"undo": True}],
        "replay": [span, {**span, "handler": "odd"}, {**span, "keys": ["odd"]}],
        "snapshot": [{"filter": "odd"}],
    }
    for path, operations in json.loads(run.get("/openapi.json")[1])["paths"].items():
        for method in operations:
            name = path.rpartition("/")[2]
            bodies: list[bytes | None] = [None]
            if method == "post":
                letters = [{}] if "letters" in path else [{}, {"odd": 1}, *taken.get(name, ())]
                bodies = [b"{", *(json.dumps(each).encode() for each in letters)]
            place = path.replace("{name}", "items").replace("{id}", letter)
            query = "?key=1" if name == "why" else ""
            for body in bodies:
                url = f"http://127.0.0.1:{run.port}{place}{query}"
                headers = {"Authorization": f"Bearer {TOKEN}"}
                asked = Request(url, body, headers, method=method.upper())
                try:
                    with urlopen(asked, timeout=30) as answer:
                        yield f"{method} {place} {body!r}", answer.read().decode()
                    if body == json.dumps(span).encode():
                        until(lambda: run.logged("replay.ended"), "the end of the replay")
                except HTTPError as error:
                    with error:
                        yield f"{method} {place} {body!r}", error.read().decode()


def test_a_running_service_tells_no_secret(guarded: ReplicaSet, daemon: Make) -> None:
    with guarded.client() as client:
        client.admin.command("createUser", "me", pwd=PASSWORD, roles=["readAnyDatabase"])
    target = {"type": "python", "target": "broken:refuse"}
    names = {"orders": "broken", "users": "file", "items": "lenient"}
    run = daemon(
        guarded.uri_as("me", PASSWORD),
        http={"port": 0, "token": TOKEN},
        logging={"level": "debug", "format": "json"},
        delivery={
            "retry": {"attempts": 2, "first_seconds": 0.01, "cap_seconds": 0.01},
            "on_failure": "halt",
        },
        handlers={
            "broken": target,
            "lenient": {**target, "on_failure": "dead_letter"},
            "file": {"type": "jsonl", "path": "events.jsonl"},
        },
        scopes=[{"name": name, "database": "shop", "collection": name} for name in names],
        routes=[{"scope": name, "handlers": [handler]} for name, handler in names.items()],
    )
    (run.directory / "broken.py").write_text(BROKEN)
    run.start()
    with guarded.client() as client:
        client.shop.orders.insert_one({})
        client.shop.items.insert_one({"_id": 1})
        # Not that of a log line: in a second without a write of the server it is in the future.
        written = client.admin.command("ping")["operationTime"].as_datetime().isoformat()
    until(lambda: run.status()["state"] == "halted", "the halt")
    until(lambda: run.logged("event.dead_lettered"), "the dead letter")
    outputs = {
        path: run.get(path)[1] for path in ("/", "/status", "/metrics", "/livez", "/readyz", "/no")
    }
    assert "amqp://me:***@broker/?api_token=***" in outputs["/status"]
    assert "amqp://me:***@broker/?api_token=***" in outputs["/readyz"]
    letter = run.logged("event.dead_lettered")[0]
    run.configuration["handlers"]["table"] = {
        "type": "postgresql",
        "dsn": f"host=127.0.0.1 port=1 user=me password={IN_HANDLER}",
        "table": "items",
    }
    run.configuration["routes"].append({"scope": "items", "handlers": ["table"]})
    run.configuration["scopes"][2]["full_document"] = "lookup"
    run.configured()
    outputs["letters"] = run.command("dead-letters", "export")  # requests below discard them
    assert "AWS_SECRET_ACCESS_KEY=***" in outputs["letters"]
    found = dict(answers(run, letter["event_id"], written))
    outputs |= found
    assert len(found) > 30
    assert any("come again, to lenient; " in text for text in found.values())
    (reloaded,) = (text for asked, text in found.items() if asked == "post /reload b'{}'")
    assert "127.0.0.1" in reloaded
    for section, last in (("handlers", "table"), ("routes", -1)):
        run.configuration[section].pop(last)
    run.configured()
    restart = Request(
        f"http://127.0.0.1:{run.port}/scopes/orders/restart",
        method="POST",
        headers={"Authorization": f"Bearer {TOKEN}"},
    )
    with urlopen(restart, timeout=5) as answer:
        outputs["restart"] = answer.read().decode()
    until(lambda: len(run.logged("scope.halted")) == 2, "the second halt")
    assert run.stop() == 0
    outputs["log"] = run.log
    assert "amqp://me:***@broker/" in run.log
    for command in (
        "check",
        "check --connect",
        "checkpoints list",
        "checkpoints show orders",
        "dead-letters list",
    ):
        with run.begun(*command.split()) as process:
            outputs[command] = "".join(process.communicate(timeout=60))
        assert process.returncode == 0, outputs[command]
    assert "me:***@" in outputs["check"]
    assert "token: '***'" in outputs["check"]
    for name, text in outputs.items():
        for secret in PLANTED:
            assert secret not in text, f"{name}: {secret}"
