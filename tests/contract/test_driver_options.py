"""How the adapters use a URI and the number of streams."""

import asyncio
import os
import sys

import pytest

from tailrace.drivers import DRIVERS
from tailrace.drivers.options import client_options
from tailrace.errors import ConfigurationError
from tests.contract.idle_streams import WAIT_MS
from tests.contract.streams import DRIVER_NAMES, connected
from tests.scripted import ScriptedSet

SECRET = "hunter2"
UNUSABLE = [
    "localhost",
    "mongodb://u:hunter2@",
    "mongodb://u:hunter2@h:port/",
    "mongodb://u:hunt@hunter2@h/",
    "mongodb://u:hunt%hunter2@h/",
    "mongodb://u:hunt/hunter2@h/shop?replicaSet=rs0",
    "mongodb://u:hunt?hunter2=1@h/",
    "mongodb://u:hunter2@h/?maxPoolSize=many",
    "mongodb://u:hunter2@h/?minPoolSize=9&maxPoolSize=1",
    "mongodb://u:hunter2@h/?tls=true&tlsCAFile=/nowhere.pem",
    "mongodb://u:hunter2@h/?authMechanism=MONGODB-X509",
    "mongodb://u:hunter2@h/?loadBalanced=true",
    "mongodb+srv://u:hunter2@h:27017/",
]


@pytest.mark.parametrize("name", DRIVER_NAMES)
@pytest.mark.parametrize("uri", UNUSABLE)
async def test_a_uri_that_cannot_be_used_is_a_configuration_error_without_the_password(
    name: str, uri: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        DRIVERS[name](uri, 1)
    error: BaseException | None = raised.value
    assert raised.value.problems[0].path == "mongodb.uri"
    while error is not None:  # a traceback shows the causes as well
        assert SECRET not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_the_pool_grows_with_the_streams_unless_the_uri_says_its_size() -> None:
    sizes = {n: client_options("mongodb://h/", n)["maxPoolSize"] for n in (1, 45, 200)}
    assert sizes == {1: 100, 45: 100, 200: 410}
    options = client_options("mongodb://h/?maxPoolSize=7&appName=mine", 50)
    assert not {"maxPoolSize", "appname"} & options.keys()


@pytest.mark.parametrize("name", DRIVER_NAMES)
async def test_the_server_is_told_who_we_are(name: str, scripted: ScriptedSet) -> None:
    async with connected(name, scripted.uri) as driver:
        await driver.run("admin", {"ping": 1})
    clients = [c.document["client"] for c in scripted.commands() if "client" in c.document]
    assert clients
    assert {client["application"]["name"] for client in clients} == {"tailrace"}


@pytest.mark.parametrize("name", DRIVER_NAMES)
async def test_many_idle_streams_do_not_delay_a_command(name: str, scripted: ScriptedSet) -> None:
    count = 40
    environment = {k: v for k, v in os.environ.items() if k != "MOTOR_MAX_WORKERS"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.contract.idle_streams", name, scripted.uri, str(count)),
        stdin=asyncio.subprocess.PIPE,
        env=environment,
    )
    try:
        await scripted.until("getMore", 20, count=count)
        await process.communicate(b"\n")
        assert process.returncode == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    sent = scripted.commands()
    (asked,) = (c for c in sent if c.document.get("comment") == "in between")
    reads = [c for c in sent if c.name == "getMore"]
    assert len(reads) == count
    assert max(c.at for c in reads) < asked.at < min(c.at for c in reads) + WAIT_MS / 1000
