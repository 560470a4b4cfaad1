"""Which MongoDB servers are supported, and what shows it: the table, and its page.

``make reference`` writes docs/supported-versions.md. Tests compare the table with what they run.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.compat.questions import QUESTIONS


@dataclass(frozen=True, slots=True)
class Shown:
    """Something that depends on a server's version, and the test (``file::function``) of it.

    ``question``: the one with which ``tailrace compat`` asks a real server about it.
    """

    what: str
    question: str
    test: str


@dataclass(frozen=True, slots=True)
class ServerVersion:
    """A version of MongoDB's server.

    ``wire_version`` is the ``maxWireVersion`` of its ``hello``. ``mongod`` is the release that the
    tests start as a real server, ``scripted`` what they show without one, besides
    :data:`EVERY_VERSION`. ``reported`` has a link to each report of a user.
    """

    version: str
    wire_version: int
    mongod: str = ""
    scripted: tuple[Shown, ...] = ()
    reported: tuple[str, ...] = ()


EVERY_VERSION = Shown(
    "a stream is opened, read and resumed, with both drivers",
    "stream.killed",
    "tests/contract/test_server_versions.py::test_a_stream_is_opened_read_and_resumed",
)

TOKENS = Shown(
    "positions are compared across an upgrade from 5.0 to 6.0, which changes the tokens",
    "token.order",
    "tests/unit/model/test_token.py::test_tokens_of_real_servers_of_two_versions_are_of_one_place",
)
BY_NAME = Shown(
    "look-ups ask by the collection's name, as the server knows no UUID there",
    "lookup.own",
    "tests/contract/test_look_up.py::test_an_older_server_is_asked_by_name",
)

VERSIONS = (
    ServerVersion(
        "4.4",
        9,
        scripted=(
            Shown(
                "snapshots are read in transactions",
                "snapshot.time",
                "tests/contract/test_snapshot_find.py::test_documents_are_those_of_the_time",
            ),
            Shown(
                "errors are resumable by their label, not by their code",
                "stream.election",
                "tests/unit/stream/test_resumable.py::test_newer_servers_say_it_by_a_label",
            ),
            BY_NAME,
        ),
    ),
    ServerVersion("5.0", 13, scripted=(BY_NAME, TOKENS)),
    ServerVersion("6.0", 17, mongod="6.0.5", scripted=(TOKENS,)),
    ServerVersion(
        "7.0",
        21,
        scripted=(
            Shown(
                "a stream that ends within a split event continues before that event",
                "event.split",
                "tests/unit/stream/test_change_stream.py"
                "::test_within_a_split_event_another_stream_continues_before_it",
            ),
            Shown(
                "updates of a sharded cluster get their documents when shard keys change",
                "sharding.lookup",
                "tests/contract/test_sharded_lookups.py"
                "::test_every_update_has_the_document_that_lives",
            ),
        ),
    ),
    ServerVersion(
        "8.0",
        25,
        scripted=(
            Shown(
                "the server's `defaultMaxTimeMS` ends no search of the oplog",
                "resume.time",
                "tests/contract/test_change_stream.py"
                "::test_no_server_time_limit_ends_the_scan_of_old_oplog",
            ),
        ),
    ),
    ServerVersion(
        "9.0",
        29,
        scripted=(
            Shown(
                "a token of an empty reply that is older than the position is not taken "
                "(SERVER-135099)",
                "token.empty",
                "tests/unit/stream/test_change_stream.py"
                "::test_the_token_of_an_empty_reply_never_moves_the_position_back",
            ),
        ),
    ),
)

_HEAD = """\
# Supported versions

<!-- Made by `make reference` from docs/supported_versions.py. Edit that. -->

Which versions of MongoDB's server does Tailrace follow, and what shows that it does?

- **tested**: `make test` runs against a real mongod of this release.
- **scripted**: tests use a server of their own that says it has this version, or call the code
  that is for this version. What such a test does not script may differ on a real server:
  [`tailrace compat`](#ask-your-own-server) asks it there.
- **reported**: users have run it, and said so.

| server | wire version | tested | scripted | reported |
|---|---|---|---|---|
"""

_BELOW = """
Real servers are replica sets of one and of three members, with elections, crashes, a truncated
oplog, logins and TLS. A sharded cluster behind mongos is only scripted. MongoDB Atlas, and
databases that speak MongoDB's protocol (DocumentDB, Cosmos DB, FerretDB), are neither tested nor
scripted. The driver (PyMongo 4.20) refuses servers of 4.2 and older.

A version between two rows, such as 8.2, is not refused, and no test shows it.
[servers.md](servers.md) says which options need which version, and what else the server needs.

## What is scripted

"""

_ASKED = r"""
## Ask your own server

```bash
tailrace compat --uri "mongodb+srv://user:password@cluster.example.net/"
```

asks a server all that is scripted above, and what else Tailrace needs, in a minute: through the
parts with which Tailrace follows changes, takes snapshots and stores positions, in a database of
its own (`tailrace_compat_` and eight random characters), which it drops at the end, also after an
error, SIGINT and SIGTERM. It writes nowhere else. The stream of the whole cluster is only opened,
with a filter for that database, and closed.

The user needs `readWriteAnyDatabase`, or `readWrite` on a database without collections that
`--database NAME` names, and `clusterMonitor` for the facts of the server. A user who lacks what the
first questions need is told which actions these are, and nothing is written.

| option | does |
|---|---|
| `--uri URI` | the server; `-` reads it from standard input, where nobody sees the password |
| `--driver motor \| pymongo` | the driver; default: `motor` |
| `--database NAME` | one without collections, **which is dropped**, instead of a new one |
| `--elections` | also lets the primary step down. The user needs the role `clusterManager` |
| `--timeout SECONDS` | of a question; default: 20. None is asked after five minutes |
| `--json`, `--output FILE` | the report as JSON, on standard output or in a file |

Each answer is one line: `yes`, `no`, `not allowed` (to this user), `not supported here`, or
`failed`, with the reason and what was seen. The report has no data, and no names of hosts, users
and databases: attach it to an issue. The exit code is 0 if the server has all that every scope
needs, 1 if it lacks some of that (or the database could not be dropped), 2 if it cannot be asked,
and 130 or 143 after SIGINT or SIGTERM.

| question | asks | needed by |
|---|---|---|
"""

_END = """
## Report a version

If you run Tailrace with a server that nobody has reported, please open an issue, with the report of
`tailrace compat --output FILE`, and what you use: snapshots, `full_document`, images, replicas.
"""


def page() -> str:
    """The whole page."""
    rows = map(_row, VERSIONS)
    return "".join([_HEAD, *rows, _BELOW, *_scripted(), _ASKED, *_questions(), _END])


def _row(server: ServerVersion) -> str:
    tested = f"mongod {server.mongod}" if server.mongod else "no"
    reported = ", ".join(server.reported) or "not yet"
    return f"| {server.version} | {server.wire_version} | {tested} | yes | {reported} |\n"


def _scripted() -> Iterator[str]:
    yield "| server | what | test | question |\n|---|---|---|---|\n"
    yield _line("all", EVERY_VERSION)
    for server in VERSIONS:
        for shown in server.scripted:
            yield _line(server.version, shown)


def _line(version: str, shown: Shown) -> str:
    file, _, function = shown.test.partition("::")
    return f"| {version} | {shown.what} | [{function}](../{file}) | `{shown.question}` |\n"


def _questions() -> Iterator[str]:
    for each in QUESTIONS:
        yield f"| `{each.name}` | {each.asks} | {each.needed_by or 'every scope'} |\n"


if __name__ == "__main__":
    print(page(), end="")
