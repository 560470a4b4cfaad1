"""What the errors of destinations mean: a row for each code, and what it is about."""

from collections.abc import Callable

import psycopg
import pytest
from pymongo.errors import OperationFailure
from redis._parsers.base import BaseParser

from tailrace import Refused, Unavailable
from tailrace.destinations.mongodb import outcomes
from tailrace.destinations.postgresql import connection
from tailrace.destinations.redis import server
from tailrace.errors import BatchTooLarge

# --- PostgreSQL --------------------------------------------------------------------------------


class ServerError(psycopg.Error):
    """An error of the server with this SQLSTATE."""

    def __init__(self, state: str) -> None:
        super().__init__(state)
        self.sqlstate = state


@pytest.mark.parametrize(("state", "about"), connection.MEANINGS.items())
def test_a_sqlstate_is_about_the_place_a_limit_or_an_event(state: str, about: str) -> None:
    error = ServerError(state if len(state) == 5 else f"{state}Z99")
    assert connection.is_of_data(error) == (about == "event")
    raised = _raised(error)
    if about == "event":
        assert raised is error
    else:
        assert type(raised) is (BatchTooLarge if about == "limit" else Unavailable)


@pytest.mark.parametrize("state", ["42P01", "42703", "0A000", "XX000"])
def test_a_sqlstate_of_the_sql_is_neither(state: str) -> None:
    """The table is looked at again, and the scope halts with what it lacks."""
    error = ServerError(state)
    assert _raised(error) is error
    assert not connection.is_of_data(error)


def _raised(error: psycopg.Error) -> BaseException:
    with pytest.raises((psycopg.Error, Unavailable)) as raised, connection.outages():
        raise error
    return raised.value


# --- MongoDB -----------------------------------------------------------------------------------

REJECTED = [
    *((code, Unavailable) for code in outcomes.OUTAGES),
    *((code, BatchTooLarge) for code in outcomes.LIMITS),
    *((code, Refused) for code in outcomes.REFUSALS),
    (96, outcomes.Rejected),
]


@pytest.mark.parametrize(("code", "kind"), REJECTED)
def test_a_code_of_mongodb_says_whose_fault_it_is(code: int, kind: type[Exception]) -> None:
    """As the error of a statement, and of a command."""
    outcome = outcomes.Rejected("d.c", 1, {"code": code}).outcome(2)
    assert type(outcome) is kind
    assert not isinstance(outcome, Refused) or outcome.reasons == {
        1: f"d.c: rejected (code {code})"
    }
    if kind in (Unavailable, BatchTooLarge):
        error = OperationFailure("no", code, {"code": code})
        with pytest.raises(kind) as raised, outcomes.outages():
            raise error
        assert type(raised.value) is kind


def test_a_command_that_is_too_large_is_not_about_its_first_event() -> None:
    rejected = outcomes.Rejected("d.c", -1, {"code": outcomes.TOO_LARGE})
    assert isinstance(rejected.outcome(2), BatchTooLarge)
    assert isinstance(rejected.outcome(1), Refused)


# --- Redis -------------------------------------------------------------------------------------

REPLIES = {
    "ERR max number of clients reached": "Redis: ConnectionError",
    "ERR unknown command 'XADD', with args": r"renamed or disabled",
    "ERR The stream has exhausted the last possible ID": "Redis: ResponseError",
    "WRONGPASS invalid username-password pair": "correct KEY, or the ACL",
    "NOAUTH Authentication required.": "correct KEY, or the ACL",
    "NOPERM this user has no permissions": "correct KEY, or the ACL",
    "OOM command not allowed when used memory > 'maxmemory'.": "raise maxmemory",
    "READONLY You can't write against a read only replica.": "name the primary",
    "MISCONF Redis is configured to save RDB snapshots": "cannot write to its disk",
    "NOREPLICAS Not enough good replicas to write.": "min-replicas-to-write",
    "LOADING Redis is loading the dataset in memory": "Redis: BusyLoadingError",
    "BUSY Redis is busy running a script.": "a script runs",
    "MASTERDOWN Link with MASTER is down": "without its primary",
    "MOVED 1 127.0.0.1:1": "Redis Cluster is not supported",
    "CLUSTERDOWN The cluster is down": "Redis Cluster is not supported",
    "EXECABORT Transaction discarded": "Redis: ExecAbortError",
    "WRONGTYPE Operation against a key": "delete it, or choose other names",
    "ERR string exceeds maximum allowed size (proto-max-bulk-len)": "",
    "ERR Protocol error: invalid bulk length": "",
}


@pytest.mark.parametrize(("reply", "advice"), REPLIES.items())
def test_a_reply_of_redis_is_about_the_server_unless_a_value_is_too_large(
    reply: str, advice: str
) -> None:
    parse: Callable[[str], Exception] = BaseParser.parse_error
    error = parse(reply)
    if advice:
        with pytest.raises(Unavailable, match=advice), server.unavailable("KEY"):
            raise error
    else:
        with pytest.raises(type(error)), server.unavailable("KEY"):
            raise error
