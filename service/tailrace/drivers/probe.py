"""Asks the server for its identity before any stream opens, and explains why it cannot be used."""

import re
from collections.abc import Callable
from typing import Any

from tailrace.drivers.command_driver import CommandDriver
from tailrace.drivers.options import parsed
from tailrace.errors import CommandFailed, ConnectionFailed, DriverError, StartRefused, describe
from tailrace.model.cluster import SHARDED, ClusterIdentity
from tailrace.stream.resumable import UNAUTHORIZED, is_retryable

DriverFactory = Callable[..., CommandDriver]

# AuthenticationFailed; UserNotFound, mongod's answer to an unknown X.509 subject.
_REFUSES_LOGIN = (18, 11)
_DIAGNOSIS_SECONDS = 2


async def identify(factory: DriverFactory, uri: str, wait_seconds: float) -> ClusterIdentity:
    """The cluster's identity, within ``wait_seconds``; :class:`StartRefused` explains a failure."""
    options: dict[str, Any] = {}
    if "serverselectiontimeoutms" not in _options(uri):
        options["serverSelectionTimeoutMS"] = int(wait_seconds * 1000)
    async with factory(uri, 1, **options) as driver:
        try:
            hello = await driver.run("admin", {"hello": 1})
            if not parsed(uri)["username"]:
                await _require_no_login(driver)
            if hello.get("msg") == "isdbgrid":
                return ClusterIdentity(SHARDED, await _id_of_cluster(driver))
            if hello.get("setName"):
                return ClusterIdentity(str(hello["setName"]), await _id_of_set(driver))
        except CommandFailed as error:
            raise StartRefused(_refusal(uri, error), may_pass=is_retryable(error)) from error
        except ConnectionFailed as error:
            raise await _diagnose(factory, uri, error) from error
        raise StartRefused(_STANDALONE.format(server=",".join(_seeds(uri))))


async def _id_of_cluster(driver: CommandDriver) -> str:
    version = {"find": "version", "limit": 1, "singleBatch": True}
    return await _asked(driver, "config", version, "cursor", "firstBatch", 0, "clusterId")


async def _id_of_set(driver: CommandDriver) -> str:
    config = {"replSetGetConfig": 1}
    return await _asked(driver, "admin", config, "config", "settings", "replicaSetId")


_STANDALONE = (
    "{server} is a standalone server, and only replica sets and sharded clusters have change "
    "streams: start it with --replSet and run rs.initiate(), even as the set's only member"
)


async def _require_no_login(driver: CommandDriver) -> None:
    """Raises ``CommandFailed`` if the server requires a login, which ``hello`` does not need."""
    try:
        command = {"listDatabases": 1, "nameOnly": True, "authorizedDatabases": True}
        await driver.run("admin", command)
    except DriverError as error:
        if isinstance(error, CommandFailed) and error.code == UNAUTHORIZED:
            raise


async def _asked(
    driver: CommandDriver, database: str, command: dict[str, Any], *path: str | int
) -> str:
    """A value of the reply; "" if it is missing or this user may not ask (clusterMonitor).

    An error that may pass is raised. Without its id, the cluster could be taken for another one.
    """
    try:
        value: Any = await driver.run(database, command)
        for step in path:
            value = value[step]
    except CommandFailed as error:
        if is_retryable(error):
            raise
        return ""
    except (KeyError, TypeError, IndexError):
        return ""
    return str(value)


def _refusal(uri: str, error: CommandFailed) -> str:
    user, server = parsed(uri)["username"], ",".join(_seeds(uri))
    if error.code in _REFUSES_LOGIN and not user:
        return f"{server} refuses the client's certificate as a login: {error}"
    if error.code in _REFUSES_LOGIN:
        return (
            f"{server} refuses the credentials of user {user!r}: check name, password and "
            f"authSource in mongodb.uri ({error})"
        )
    if error.code == UNAUTHORIZED:
        who = f"user {user!r}" if user else "a client without credentials"
        return f"{server} demands authentication or a role that {who} lacks: {error}"
    return f"{server} answered with an error: {error}"


async def _diagnose(factory: DriverFactory, uri: str, error: ConnectionFailed) -> StartRefused:
    """Asks each seed directly for its identity, after the driver found no server."""
    may_pass = True
    options = _options(uri)
    wanted = options.get("replicaset")
    answers = []
    for where in _seeds(uri):
        try:
            async with factory(
                f"mongodb://{where}/",
                1,
                directConnection=True,
                serverSelectionTimeoutMS=_DIAGNOSIS_SECONDS * 1000,
                connectTimeoutMS=_DIAGNOSIS_SECONDS * 1000,
                **{name: value for name, value in options.items() if name.startswith("tls")},
            ) as direct:
                hello = await direct.run("admin", {"hello": 1})
        except DriverError as unreached:
            answers.append(_unreached(where, unreached, encrypted=bool(options.get("tls"))))
            may_pass = may_pass and not _TLS.search(str(unreached))
            continue
        name = hello.get("setName")
        if not name and hello.get("msg") != "isdbgrid":
            answers.append(_STANDALONE.format(server=where))
            may_pass = False
        elif wanted and name != wanted:
            answers.append(
                f"{where} belongs to replica set {name!r}, but mongodb.uri says "
                f"replicaSet={wanted}: correct the name"
            )
            may_pass = False
        else:
            answers.append(f"{where} answers, but no member suits: {describe(error)}")
    message = "no MongoDB server to follow: " + "; ".join(answers)
    return StartRefused(message, may_pass=may_pass)


_TLS = re.compile("ssl|certificate", re.IGNORECASE)
# The parts of a driver's error besides the reason: the kind, the address, the driver's state.
_BESIDE = re.compile(
    r"^(ServerSelectionTimeoutError: )?(SSL handshake failed: )?(\S+:\d+: )?"
    r"|( \(configured timeouts|, Timeout: ).*",
    re.DOTALL,
)


def _unreached(where: str, error: DriverError, *, encrypted: bool) -> str:
    """Why one address does not answer, in one line, without the driver's own state."""
    reason = _BESIDE.sub("", str(error))
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        return (
            f"the certificate of {where} is not trusted ({reason}): check tlsCAFile in "
            "mongodb.uri, and that the certificate was made for that name"
        )
    hangs_up = "reset by peer" in reason or "closed" in reason
    # With TLS 1.3 a client learns only after its handshake that its certificate was missing.
    if "ssl" in reason.lower() or (encrypted and hangs_up):
        return (
            f"{where} does not complete TLS ({reason}): does it speak TLS, and does it ask for a "
            "client's certificate (tlsCertificateKeyFile in mongodb.uri)?"
        )
    if hangs_up:
        return f"{where} hangs up ({reason}): if it demands TLS, put tls=true into mongodb.uri"
    return f"{where} cannot be reached: {reason}"


def _options(uri: str) -> dict[str, Any]:
    return {str(name).lower(): value for name, value in parsed(uri)["options"].items()}


def _seeds(uri: str) -> list[str]:
    return [
        host if port is None else f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        for host, port in parsed(uri)["nodelist"]
    ]
