"""The commands as a shell sees them: output and exit codes."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tailrace.cli import main

CONFIGURATION = {
    "mongodb": {"uri": "mongodb://me:hush-hush@localhost:1/?replicaSet=rs0"},
    "scopes": [{"name": "orders", "database": "shop", "collection": "orders"}],
    "handlers": {"log": {"type": "log"}},
    "routes": [{"scope": "orders", "handlers": ["log"]}],
}
TOKEN = json.dumps({"_data": "8265"})


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    configure()
    return tmp_path


def configure(file: str = "config.yaml", **sections: Any) -> None:
    Path(file).write_text(yaml.safe_dump({**CONFIGURATION, **sections}))


@pytest.mark.parametrize(
    "arguments",
    [[], ["--no-such"], ["fly"], ["checkpoints"], ["demo", "--events", "0"], ["run", "extra"]],
)
def test_wrong_usage_is_exit_code_two(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: tailrace" in capsys.readouterr().err


def test_check_prints_the_effective_configuration_without_secrets(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check"]) == 0
    printed = capsys.readouterr().out
    assert "hush-hush" not in printed
    shown = yaml.safe_load(printed)
    assert shown["scopes"][0]["name"] == "orders"
    assert shown["http"]["port"] == 9464


def test_check_names_the_scopes_that_hand_over_changes_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scopes = [{"name": name, "database": name} for name in "abc"]
    routes = [{"scope": name, "handlers": ["log"]} for name in "abc"]
    configure(scopes=[scopes[0], {**scopes[1], "snapshot": "initial"}, scopes[2]], routes=routes)
    assert main(["check"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "snapshot: never" in line
    assert line.endswith(": a, c")
    configure(scopes=[{**scopes[1], "snapshot": "initial"}], routes=routes[1:2])
    assert main(["check"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", [["check"], ["health"], ["checkpoints", "list"]])
def test_a_file_that_is_not_there_is_one_message(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--config", "nowhere.yaml"]) == 2
    error = capsys.readouterr().err
    assert "nowhere.yaml" in error
    assert len(error.splitlines()) == 1


def test_every_problem_is_printed_with_its_path(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure(http={"prt": 1}, delivery={"lanes": "x"})
    assert main(["check"]) == 2
    error = capsys.readouterr().err
    assert "config.yaml: 2 problems" in error
    assert "  http.prt: " in error
    assert "  delivery.lanes: " in error


def test_a_target_that_cannot_be_imported_is_found_by_check(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure(handlers={"log": {"type": "python", "target": "no_such_module_here:handle"}})
    assert main(["check"]) == 2
    assert "handlers.log.target" in capsys.readouterr().err


def test_a_module_is_looked_for_beside_the_file_first(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(directory), *sys.path])
    (directory / "etc").mkdir()
    handlers = {"log": {"type": "python", "target": "looked_for:handle"}}
    configure("etc/config.yaml", handlers=handlers)
    for place in (directory, directory / "etc"):
        (place / "looked_for.py").write_text("async def handle(event): ...\n")
    assert main(["check", "--config", "etc/config.yaml"]) == 0
    assert sys.modules["looked_for"].__file__ == str(directory / "etc/looked_for.py")


def test_positions_are_set_shown_and_reset(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoints", "list"]) == 0
    assert "No checkpoints" in capsys.readouterr().out
    assert main(["checkpoints", "set", "orders", "--token", TOKEN, "--dry-run"]) == 0
    assert "Dry run" in capsys.readouterr().out
    assert main(["checkpoints", "set", "orders", "--token", TOKEN]) == 0
    capsys.readouterr()
    assert main(["checkpoints", "show", "orders", "--json"]) == 0
    assert json.loads(json.loads(capsys.readouterr().out)["high_water"]) == {"_data": "8265"}
    assert main(["checkpoints", "reset", "orders"]) == 0
    assert main(["checkpoints", "show", "orders"]) == 2


def test_an_unreachable_server_is_exit_code_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    uri = "mongodb://me:hush-hush@localhost:1/?replicaSet=rs0"
    configure(mongodb={"uri": uri, "connect_timeout_seconds": 0.2})
    assert main(["check", "--connect"]) == 1
    error = capsys.readouterr().err
    assert "localhost:1 cannot be reached" in error
    assert "hush-hush" not in error
