"""Credentials that are replaced while the daemon runs: a reload reads them again."""

import secrets
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.actions import act
from tests.daemon import Make, until
from tests.mongod import ReplicaSet
from tests.mongod.operations import operations
from tests.orders import QUICK, Orders
from tests.postgresql import PostgreSQL
from tests.reloads import Reloaded

ROLES = [
    "readAnyDatabase",
    "clusterMonitor",
    {"role": "readWrite", "db": "rotated"},
]


class Rotated(Reloaded):
    """A daemon that reads the URI of the server from a file."""

    def __init__(self, orders: Orders, driver: str = "motor", **sections: Any) -> None:
        super().__init__(orders, **sections)
        self.file = self.run.directory / "uri"
        self.config["mongodb"] = {"uri_file": str(self.file), "driver": driver}

    def user(self, roles: list[Any] = ROLES) -> tuple[str, str]:
        """A new user's name and password."""
        name, password = f"user{secrets.token_hex(4)}", f"password{secrets.token_hex(8)}"
        with self.orders.server.client() as client:
            client.admin.command("createUser", name, pwd=password, roles=roles)
        return name, password

    def log_in(self, name: str, password: str) -> None:
        self.file.write_text(self.orders.server.uri_as(name, password) + QUICK)

    def users(self) -> set[str]:
        """Whose connections the server has, of the daemon."""
        every = {"allUsers": True, "idleConnections": True}
        with self.orders.server.client() as client:
            found = operations(client, {}, "effectiveUsers", **every)
        users = (user for each in found for user in each.get("effectiveUsers", ()))
        return {each["user"] for each in users} - {"root", "__system"}


@pytest.fixture
def orders(guarded: ReplicaSet, database: str, daemon: Make) -> Orders:
    return Orders(guarded, database, daemon)


SHARED = {
    "store": {"type": "mongodb", "database": "rotated"},
    "replicas": {"lease_seconds": 60},
}


@pytest.mark.parametrize("driver", ["motor", "pymongo"])
def test_a_role_and_a_user_that_are_missing_for_a_while_are_waited_for(
    orders: Orders, driver: str
) -> None:
    """The server also logs the connections of a removed user out, for ever."""
    rotated = Rotated(orders, driver)
    run, (name, password) = rotated.run, rotated.user()
    rotated.log_in(name, password)
    run.start()
    absences: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"updateUser": name, "roles": []}, {"updateUser": name, "roles": ROLES}),
        ({"dropUser": name}, {"createUser": name, "pwd": password, "roles": ROLES}),
    ]
    with orders.server.client() as client:
        for number, (away, back) in enumerate(absences):
            client.admin.command(away)
            again = "It is tried again until it works"  # it first meets closed connections, or not
            until(lambda again=again: again in run.status()["reason"], "the wait")  # type: ignore[misc]
            until(lambda: run.status()["state"] == "backing_off", "the wait")
            assert run.get("/readyz")[0] == 503
            orders.insert(number)
            client.admin.command(back)
            until(lambda number=number: number in run.numbers("orders"), "the change")  # type: ignore[misc]
    run.until_ready()
    assert run.stop() == 0
    assert not run.logged("scope.halted")


@pytest.mark.parametrize(("driver", "sections"), [("motor", SHARED), ("pymongo", {})])
def test_a_new_user_takes_over_while_changes_come(
    orders: Orders, driver: str, sections: dict[str, Any]
) -> None:
    """The former user is removed, and its client closed; nothing is lost, and nothing comes
    twice. Then a wrong password, and a user without rights, change nothing."""
    rotated = Rotated(orders, driver, **sections)
    run, first, second = rotated.run, rotated.user(), rotated.user()
    rotated.log_in(*first)
    run.start()
    with orders.load() as load:
        until(lambda: run.numbers("orders"), "changes")
        rotated.log_in(*second)
        status, dry = rotated.reload(dry_run=True)
        changed = {"effect": "restarted", "because": ["mongodb.uri"]}
        assert (status, dry["scopes"]) == (202, {"orders": changed, "users": changed})
        assert rotated.users() == {first[0]}
        status, done = rotated.reload()
        assert (status, done["draining"], done["handlers"]) == (202, [], dry["handlers"]), run.log
        with orders.server.client() as client:
            client.admin.command("dropUser", first[0])
        until(lambda: rotated.users() == {second[0]}, "the close of the former client")
        seen = len(run.numbers("orders"))
        until(lambda: len(run.numbers("orders")) > seen + 10, "changes")
    assert rotated.runs("orders") == 2
    wrong, powerless = (second[0], "wrong-password"), rotated.user(["clusterMonitor"])
    refusals = {wrong: "refuses the credentials of user", powerless: "may not follow scope"}
    for login, message in refusals.items():
        rotated.log_in(*login)
        status, answer = rotated.reload()
        assert status == 422, answer
        assert message in answer
        assert answer.rstrip().endswith("Nothing was changed")
        assert "\n" not in answer.rstrip()
    rotated.insert(1, "users")
    rotated.until("users", 1)
    until(lambda: len(run.numbers("orders")) >= load.written, "all changes")
    assert sorted(run.numbers("orders")) == [*range(load.written)]
    assert (rotated.runs("orders"), rotated.users()) == (2, {second[0]})
    assert run.stop() == 0, run.log
    assert "Traceback" not in run.log
    for _, password in (first, second, wrong, powerless):
        assert password not in run.log


def test_another_cluster_needs_a_restart(orders: Orders, mongod: ReplicaSet) -> None:
    rotated = Rotated(orders)
    rotated.log_in(*rotated.user())
    run = rotated.run.start()
    rotated.file.write_text(mongod.uri)
    status, answer = rotated.reload()
    assert status == 422
    assert "mongodb.uri: is the cluster" in answer
    assert "only a restart of the process follows another one" in answer
    assert run.stop() == 0, run.log


def test_credentials_of_handlers_are_read_again(orders: Orders, one_postgresql: PostgreSQL) -> None:
    """Of a destination, and of a user's class: the objects that had the former ones are left."""
    rotated = Rotated(orders)
    rotated.log_in(*rotated.user())
    run, path = rotated.run, rotated.run.directory / "path"
    dsn, roles = run.directory / "dsn", [f"r{secrets.token_hex(4)}" for _ in range(2)]
    names = {"first": sql.Identifier(roles[0]), "second": sql.Identifier(roles[1])}
    path.write_text("first\n")
    dsn.write_text(one_postgresql.dsn.replace("postgres@", f"{roles[0]}@"))
    rotated.config["handlers"]["sink"] = rotated.sink({"file": str(path)})
    rotated.config["handlers"]["table"] = {
        "type": "postgresql",
        "dsn": {"file": str(dsn)},
        "log": roles[0],
    }
    rotated.config["routes"].append({"scope": "orders", "handlers": ["table"]})
    with psycopg.connect(one_postgresql.dsn, autocommit=True) as server:

        def execute(statement: str) -> None:
            server.execute(sql.SQL(statement).format(**names))

        execute("CREATE ROLE {first} LOGIN")
        execute("CREATE ROLE {second} LOGIN IN ROLE {first}")
        execute("GRANT CREATE ON SCHEMA public TO {first}")
        run.start()
        rotated.insert(1, "orders", "users")
        rotated.until("first", 1)
        path.write_text("second\n")
        dsn.write_text(one_postgresql.dsn.replace("postgres@", "nobody@"))
        status, answer = rotated.reload()
        assert status == 422
        assert "handlers.table" in answer
        assert rotated.life() == ["opened first", "opened second", "closed second"]
        dsn.write_text(one_postgresql.dsn.replace("postgres@", f"{roles[1]}@"))
        handlers = rotated.reload()[1]["handlers"]
        assert handlers == {"note": "kept", "sink": "reopened", "table": "reopened"}
        execute("ALTER ROLE {first} NOLOGIN")
        sessions = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s"
        server.execute(sessions, [roles[0]])
        rotated.insert(2, "orders", "users")
        rotated.until("second", 2)
        rotated.until("orders", 1, 2)

        def rows() -> list[tuple[object, ...]]:
            query = sql.SQL("SELECT key FROM {first}").format(**names)
            return server.execute(query).fetchall()

        until(lambda: len(rows()) == 2, "both changes in the table")
    assert run.stop() == 0, run.log
    assert rotated.life()[3:] == ["opened second", "closed first", "closed second"]


def test_a_token_that_was_replaced_in_its_file_asks_for_the_reload(orders: Orders) -> None:
    """The former token is valid until then."""
    rotated = Rotated(orders)
    rotated.log_in(*rotated.user())
    run, file = rotated.run, rotated.run.directory / "token"
    former, newest = secrets.token_hex(16), secrets.token_hex(16)
    rotated.config["http"] = {"port": 0, "token_file": str(file)}
    file.write_text(former)
    run.start()
    file.write_text(newest)
    for token, status in ((secrets.token_hex(16), 401), (former, 202)):
        assert act(run, "/reload", bearer=token, dry_run=True)[0] == status
    done = act(run, "/reload", bearer=newest)[1]
    assert done["settings"] == ["http.token"]
    assert {each["effect"] for each in done["scopes"].values()} == {"kept"}
    for token, status in ((former, 401), (newest, 202)):
        assert act(run, "/reload", bearer=token)[0] == status
    assert run.stop() == 0, run.log
