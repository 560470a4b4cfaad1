"""``tailrace pipeline --config`` and ``tailrace health`` read one section of the daemon's file."""

from pathlib import Path

import pytest

from tailrace.config.pipeline_file import load_pipeline
from tailrace.config.sections import SECTIONS
from tailrace.config.served import load_served
from tailrace.config.settings import Settings
from tailrace.errors import ConfigurationError

OF_THE_DAEMON = """\
mongodb: {uri: "${MONGODB_URI}"}
http: {port: nonsense, token_file: /nowhere}
scopes: []
"""


def write(directory: Path, text: str) -> Path:
    path = directory / "config.yaml"
    path.write_text(OF_THE_DAEMON + text)
    return path


def test_what_only_the_daemon_reads_is_not_needed(tmp_path: Path) -> None:
    path = write(tmp_path, "pipeline: {lake: '${LAKE}', tables: there, interval_seconds: 7}\n")
    settings = load_pipeline(path, {"LAKE": "here"})
    assert (settings.lake, settings.tables, settings.interval_seconds) == ("here", "there", 7)


@pytest.mark.parametrize("text", ["", "pipeline:\n", "pipeline: {}\n"])
def test_a_file_without_the_section_gives_the_defaults(tmp_path: Path, text: str) -> None:
    assert load_pipeline(write(tmp_path, text), {}).lake is None


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("pipeline: {lake: '${LAKE}'}\n", "pipeline.lake", "variable LAKE is not set"),
        ("pipeline: {interval_secs: 1}\n", "pipeline.interval_secs", "did you mean 'interval_s"),
        ("pipeline: {interval_seconds: x}\n", "pipeline.interval_seconds", "must be a number"),
        ("pipelin: {lake: here}\n", "pipelin", "did you mean 'pipeline'?"),
        ("pipeline: []\n", "pipeline", "must be a mapping"),
    ],
)
def test_its_own_problems_are_reported_alone_with_their_paths(
    tmp_path: Path, text: str, path: str, message: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_pipeline(write(tmp_path, text), {})
    (problem,) = refused.value.problems
    assert (problem.path, problem.line) == (path, 4)
    assert message in problem.message


def test_health_reads_only_http_and_store_with_its_token_file(tmp_path: Path) -> None:
    """It asks a running daemon, whatever else is in the file by now."""
    (tmp_path / "token").write_text("0123456789abcdef")
    path = tmp_path / "config.yaml"
    http = f"{{port: 7, protect: everything, token_file: {tmp_path}/token}}"
    path.write_text(f"mongodb: {{uri: '${{MONGODB_URI}}'}}\nhandlers: 5\nhttp: {http}\n")
    assert load_served(path, {}).http.port == 7
    path.write_text("http: {prt: 7}\n")
    with pytest.raises(ConfigurationError, match="did you mean 'port'"):
        load_served(path, {})


def test_the_names_of_scopes_and_their_handlers_are_read_without_checking_them(
    tmp_path: Path,
) -> None:
    """A command refuses a name that is not there before it asks the daemon."""
    path = tmp_path / "config.yaml"
    (tmp_path / "more.yaml").write_text("scopes: [{name: b}]\nroutes: [{scope: b, handlers: [y]}]")
    path.write_text(
        "scopes: [{name: a, collection: '${NONE}'}, 7]\ninclude: [more.yaml]\n"
        "routes: [{scope: a, handlers: [x, y]}, {scope: a, handlers: [z, x]}, {scope: odd}]\n"
    )
    assert load_served(path, {}).handlers == {"a": ["x", "y", "z"], "b": ["y"]}


def test_every_section_is_known_without_the_models() -> None:
    assert Settings.by_key().keys() == SECTIONS
