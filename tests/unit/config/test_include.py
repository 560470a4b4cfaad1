"""A configuration in several files."""

from pathlib import Path

import pytest

from tailrace.config.loading import located
from tailrace.errors import ConfigurationError, Problem
from tests.configuration import load

MAIN = """\
include: [parts/orders.yaml, parts/users.yaml]
mongodb: {uri: mongodb://localhost/}
handlers:
  log: {type: log}
"""
ORDERS = """\
scopes: [{name: orders, database: shop}]
handlers:
  audit: {type: log}
routes: [{scope: orders, handlers: [log, audit]}]
"""
USERS = """\
include: [more.yaml]
scopes: [{name: users, database: crm}]
routes: [{scope: users, handlers: [log]}]
"""
FILES = {
    "main.yaml": MAIN,
    "parts/orders.yaml": ORDERS,
    "parts/users.yaml": USERS,
    "parts/more.yaml": "http: {port: 1}\n",
}


def written(directory: Path, **changed: str) -> Path:
    """The path of the main file; keywords replace files, by the name without its suffix."""
    (directory / "parts").mkdir()
    for name, text in FILES.items():
        (directory / name).write_text(changed.get(Path(name).stem, text))
    return directory / "main.yaml"


def problems(main: Path) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load(main, {})
    assert caught.value.source in (str(main), str(main.parent / "parts/more.yaml"))
    return [str(each).replace(f"{main.parent}/", "") for each in caught.value.problems]


def test_scopes_routes_and_handlers_of_all_files_are_joined(tmp_path: Path) -> None:
    settings = load(written(tmp_path), {})
    assert [scope.name for scope in settings.scopes] == ["orders", "users"]
    assert [route.scope for route in settings.routes] == ["orders", "users"]
    assert set(settings.handlers) == {"log", "audit"}
    assert settings.http.port == 1
    assert settings.include is None


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {"more": "handlers:\n  audit: {type: log}\n"},
            "handlers.audit: is given in parts/orders.yaml (line 3) and in parts/more.yaml "
            "(line 2) (parts/orders.yaml, line 3)",
        ),
        (
            {"more": "mongodb: {uri: mongodb://other/}\n"},
            "mongodb: is given in main.yaml (line 2) and in parts/more.yaml (line 1) (line 2)",
        ),
        (
            {"more": "include: [../main.yaml]\n"},
            "include[0]: main.yaml includes parts/users.yaml includes parts/more.yaml includes "
            "parts/../main.yaml: a file cannot include itself (parts/more.yaml, line 1)",
        ),
        (
            {"more": "include: [orders.yaml]\n"},
            "include[0]: parts/orders.yaml is included by main.yaml already "
            "(parts/more.yaml, line 1)",
        ),
        (
            {"main": MAIN.replace("users.yaml", "none.yaml")},
            "include[1]: parts/none.yaml: no such file (line 1)",
        ),
        ({"main": f"include: a\n{MAIN[47:]}"}, "include: must be a list of files (line 1)"),
        ({"main": f"include: [1]\n{MAIN[47:]}"}, "include[0]: must be the path of a file (line 1)"),
        (
            {"users": USERS.replace("name: users,", "name: users, nam: x,")},
            "scopes[1].nam: is not a known key; did you mean 'name'? (parts/users.yaml, line 2)",
        ),
        (
            {"users": USERS.replace("[log]", '["${NONE}"]')},
            "routes[1].handlers[0]: the environment variable NONE is not set; set it, or give a "
            "default as in ${NONE:-default} (parts/users.yaml, line 3)",
        ),
        ({"more": "http: ]\n"}, "line 1, column 7: not YAML: while parsing a block node"),
    ],
)
def test_a_mistake_names_the_file_and_the_line(
    changed: dict[str, str], expected: str, tmp_path: Path
) -> None:
    (found,) = problems(written(tmp_path, **changed))
    assert found.startswith(expected)


def test_a_problem_that_is_found_later_names_the_included_file(tmp_path: Path) -> None:
    error = located(ConfigurationError(Problem("handlers.audit.level", "…")), written(tmp_path))
    assert (
        str(error.problems[0]) == f"handlers.audit.level: … ({tmp_path}/parts/orders.yaml, line 3)"
    )
