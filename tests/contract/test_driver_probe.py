"""The probe identifies the cluster, or says in one sentence why it cannot be followed."""

import re
import socket

import pytest

from tailrace.drivers import DRIVERS, identify, probe
from tailrace.errors import StartRefused
from tailrace.model.cluster import ClusterIdentity
from tests.contract.streams import ABANDONS_CONNECTS, DRIVER_NAMES
from tests.mongod import ReplicaSet, Standalone
from tests.scripted import Command, ScriptedSet

pytestmark = [pytest.mark.parametrize("name", DRIVER_NAMES), *ABANDONS_CONNECTS]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_DIAGNOSIS_SECONDS", 0.2)


async def refusal(name: str, uri: str, seconds: float = 0.3) -> str:
    with pytest.raises(StartRefused) as raised:
        await identify(DRIVERS[name], uri, seconds)
    return str(raised.value)


async def test_a_replica_set_has_its_name_and_the_id_of_its_creation(
    name: str, scripted: ScriptedSet
) -> None:
    identity = await identify(DRIVERS[name], scripted.uri, 5)
    assert identity == ClusterIdentity("scripted", str(scripted.replica_set_id))


async def test_a_real_server_is_known_again(name: str, mongod: ReplicaSet) -> None:
    first = await identify(DRIVERS[name], mongod.uri, 5)
    assert first.name == "rs0"
    assert await identify(DRIVERS[name], mongod.uri, 5) == first


async def test_a_mongos_has_the_cluster_s_id(name: str) -> None:
    def version(command: Command) -> dict[str, object] | None:
        if command.name != "find" or command.database != "config":
            return None
        return {"cursor": {"id": 0, "ns": "config.version", "firstBatch": [{"clusterId": "c1"}]}}

    with ScriptedSet(kind="mongos") as server:
        server.on_command(version)
        assert await identify(DRIVERS[name], server.uri, 5) == ClusterIdentity("mongos", "c1")


@pytest.mark.parametrize("option", ["", "?replicaSet=rs0"], ids=["without a set", "with a set"])
async def test_a_standalone_server_is_told_how_to_become_one_that_serves(
    name: str, option: str, standalone: Standalone
) -> None:
    message = await refusal(name, standalone.uri + option)
    assert f"{standalone.hosts[0]} is a standalone server" in message
    assert "rs.initiate()" in message


async def test_another_set_s_name_is_told(name: str, mongod: ReplicaSet) -> None:
    message = await refusal(name, mongod.uri.replace("=rs0", "=other"))
    assert "belongs to replica set 'rs0'" in message
    assert "replicaSet=other: correct the name" in message


async def test_every_seed_that_does_not_answer_is_named(name: str) -> None:
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in (one, other)]
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    message = await refusal(name, f"mongodb://{hosts}/?replicaSet=rs0", 0.1)
    expected = "; ".join(
        rf"127\.0\.0\.1:{port} cannot be reached: \[Errno 111\] [^;]+" for port in ports
    )
    assert re.fullmatch(f"no MongoDB server to follow: {expected}", message)


async def test_a_set_without_a_primary_is_told(name: str, scripted: ScriptedSet) -> None:
    scripted.step_down()
    message = await refusal(name, scripted.uri)
    assert f"{scripted.hosts[0]} answers, but no member suits" in message


async def test_refused_credentials_name_the_user_and_never_the_password(
    name: str, guarded: ReplicaSet
) -> None:
    uri = guarded.uri_as("root", "wrong-hunter2")
    message = await refusal(name, uri, 5)
    assert "refuses the credentials of user 'root'" in message
    assert "authSource" in message
    assert "hunter2" not in message


async def test_missing_credentials_are_told(name: str, guarded: ReplicaSet) -> None:
    message = await refusal(name, guarded.uri, 5)
    assert "a client without credentials" in message


async def test_credentials_without_the_privilege_to_read_the_id_serve_as_well(
    name: str, guarded: ReplicaSet
) -> None:
    reader = f"probe_{name}"
    with guarded.client() as client:
        client.admin.command("createUser", reader, pwd="right", roles=["readAnyDatabase"])
    uri = guarded.uri_as(reader, "right")
    assert await identify(DRIVERS[name], uri, 5) == ClusterIdentity("rs0")


@pytest.mark.parametrize("failure", [{"errorCode": 11600}, {"closeConnection": True}], ids=str)
async def test_a_cluster_whose_id_cannot_be_read_for_a_moment_is_no_other_cluster(
    name: str, mongod: ReplicaSet, failure: dict[str, object]
) -> None:
    """Without the id, the position of another cluster with the same name would be accepted."""
    mongod.fail("replSetGetConfig", **failure)
    with pytest.raises(StartRefused) as raised:
        await identify(DRIVERS[name], mongod.uri, 5)
    assert raised.value.may_pass
    assert (await identify(DRIVERS[name], mongod.uri, 5)).unique
