"""No secret is disclosed: the tests search all output of the service for planted secrets."""

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote_plus
from urllib.request import Request, urlopen

from tests.checkout import IMPORTS
from tests.daemon import Make, until
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


def told(directory: Path, *arguments: str) -> tuple[int, str]:
    """The exit code of a command, and all its output."""
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", *arguments],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": IMPORTS},
    )
    return done.returncode, done.stdout


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
    until(lambda: run.status()["state"] == "halted", "the halt")
    until(lambda: run.logged("event.dead_lettered"), "the dead letter")
    outputs = {
        path: run.get(path)[1] for path in ("/", "/status", "/metrics", "/livez", "/readyz", "/no")
    }
    assert "amqp://me:***@broker/?api_token=***" in outputs["/status"]
    assert "amqp://me:***@broker/?api_token=***" in outputs["/readyz"]
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
    outputs["letters"] = run.command("dead-letters", "export")
    assert "AWS_SECRET_ACCESS_KEY=***" in outputs["letters"]
    for command in (
        "check",
        "check --connect",
        "checkpoints list",
        "checkpoints show orders",
        "dead-letters list",
        "dead-letters replay --dry-run",
    ):
        code, outputs[command] = told(run.directory, *command.split())
        assert code == 0, outputs[command]
    assert "me:***@" in outputs["check"]
    assert "token: '***'" in outputs["check"]
    for name, text in outputs.items():
        for secret in PLANTED:
            assert secret not in text, f"{name}: {secret}"
