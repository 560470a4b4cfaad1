"""Authentication by the driver: TLS, client certificates, SCRAM, X.509."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from tests.daemon import Daemon, Make
from tests.mongod import ReplicaSet
from tests.scratch import MakeDirectory


@dataclass(frozen=True)
class Certificates:
    """Files in a directory: ``ca``, ``other`` (from another authority), ``server``, ``client``."""

    directory: Path

    def path(self, name: str) -> str:
        return str(self.directory / f"{name}.pem")

    def query(self, ca: str = "ca", client: str = "") -> str:
        query = f"&tls=true&tlsCAFile={self.path(ca)}"
        return query + (f"&tlsCertificateKeyFile={self.path(client)}" if client else "")


@pytest.fixture(scope="module")
def certificates(session_directory: MakeDirectory) -> Certificates:
    directory = session_directory("certificates")
    found = Certificates(directory)
    ca, other = trustme.CA(), trustme.CA()
    ca.cert_pem.write_to_path(found.path("ca"))
    other.cert_pem.write_to_path(found.path("other"))
    for name, identities in (("server", ["127.0.0.1"]), ("elsewhere", ["db.example"])):
        made = ca.issue_cert(*identities)
        made.private_key_and_cert_chain_pem.write_to_path(found.path(name))
    client = ca.issue_cert(
        "tailrace@example",
        common_name="tailrace",
        organization_name="Example",
        organization_unit_name="Services",
    )
    client.private_key_and_cert_chain_pem.write_to_path(found.path("client"))
    return found


def serving(directory: Path, certificates: Certificates, name: str) -> ReplicaSet:
    """A server that speaks only TLS, with the named certificate, and wants client certificates."""
    flags: dict[str, str | None] = {
        "--tlsMode": "requireTLS",
        "--tlsCertificateKeyFile": certificates.path(name),
        "--tlsCAFile": certificates.path("ca"),
    }
    query = certificates.query(client="client") + "&tlsAllowInvalidHostnames=true"
    return ReplicaSet(directory, flags=flags, query=query)


@pytest.fixture(scope="module")
def server(session_directory: MakeDirectory, certificates: Certificates) -> Iterator[ReplicaSet]:
    server = serving(session_directory("tls"), certificates, "server")
    yield server
    server.stop()


def follows(run: Daemon, server: ReplicaSet) -> None:
    """Starts the daemon and waits until it has handled one event."""
    run.start()
    with server.client() as client:
        client.shop.orders.insert_one({})
    run.until_events(1)
    assert run.stop() == 0


def refused(run: Daemon, code: int) -> str:
    run.configuration["mongodb"]["connect_timeout_seconds"] = 1
    run.start(ready=False)
    assert run.wait() == code, run.log
    assert "Traceback" not in run.log
    lines = run.log.splitlines()
    assert "service.starting" in lines[0]
    assert len(lines) <= 2, run.log
    return lines[-1]


def test_a_trusted_server_is_followed_with_a_client_certificate(
    server: ReplicaSet, certificates: Certificates, daemon: Make
) -> None:
    uri = server.uri + certificates.query(client="client")
    follows(daemon(uri, mongodb={"uri": uri, "driver": "pymongo"}), server)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("other", "certificate of {where} is not trusted"),
        ("none", "put tls=true into mongodb.uri"),
        ("no client", "does it ask for a client's certificate"),
    ],
)
def test_tls_without_what_the_server_asks_for_is_refused(
    server: ReplicaSet, certificates: Certificates, daemon: Make, query: str, message: str
) -> None:
    queries = {
        "other": certificates.query("other"),
        "none": "",
        "no client": certificates.query(),
    }
    line = refused(daemon(server.uri + queries[query]), 1)
    assert message.format(where=server.hosts[0]) in line


def test_tls_with_the_certificate_of_another_host_is_refused(
    tmp_path: Path, certificates: Certificates, daemon: Make
) -> None:
    server = serving(tmp_path / "server", certificates, "elsewhere")
    try:
        line = refused(daemon(server.uri + certificates.query()), 1)
        assert "is not trusted" in line
        assert "not valid for '127.0.0.1'" in line
    finally:
        server.stop()


def test_an_authority_whose_file_is_not_a_certificate_is_refused(
    tmp_path: Path, daemon: Make
) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("no certificate")
    assert "mongodb.uri" in refused(daemon(f"mongodb://127.0.0.1/?tls=true&tlsCAFile={file}"), 2)


def test_a_client_certificate_is_a_login(
    server: ReplicaSet, certificates: Certificates, daemon: Make
) -> None:
    login = (
        f"{certificates.query(client='client')}&authMechanism=MONGODB-X509&authSource=%24external"
    )
    line = refused(daemon(server.uri + login, "stranger"), 1)
    assert "refuses the client's certificate as a login" in line
    subject = "CN=tailrace,OU=Services,O=Example"
    assert subject in line
    with server.client() as client:
        roles = [{"role": "read", "db": "shop"}]
        mechanisms = ["MONGODB-X509"]
        client["$external"].command("createUser", subject, roles=roles, mechanisms=mechanisms)
    follows(daemon(server.uri + login), server)


def test_uri_file_holds_a_login_by_scram(guarded: ReplicaSet, tmp_path: Path, daemon: Make) -> None:
    name, password, mechanism = "me too", "p@ss/word:2", "SCRAM-SHA-256"
    with guarded.client() as client:
        roles, mechanisms = ["readAnyDatabase"], [mechanism]
        client.admin.command("createUser", name, pwd=password, roles=roles, mechanisms=mechanisms)
    login = f"{guarded.uri_as(name, password)}&authMechanism={mechanism}"
    file = tmp_path / "uri"
    file.write_text(f"{login}\n")
    run = daemon("", mongodb={"uri_file": str(file)})
    follows(run, guarded)
    file.write_text(login.replace("word", "wxrd"))
    run = daemon("", "wrong", mongodb={"uri_file": str(file)})
    line = refused(run, 1)
    assert f"refuses the credentials of user '{name}'" in line
    for secret in ("p%40ss", "p@ss", "wxrd"):
        assert secret not in run.log
