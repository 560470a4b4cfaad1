"""The commands as a shell sees them: output and exit codes."""

import json
import sys
from pathlib import Path

import pytest
import yaml

from tailrace.cli import main
from tailrace.cli.commands import COMMANDS, parser
from tests.unit.cli.conftest import Configure

Output = pytest.CaptureFixture[str]

pytestmark = pytest.mark.usefixtures("configure")


@pytest.mark.parametrize(
    "arguments",
    [[], ["--no-such"], ["fly"], ["checkpoints"], ["demo", "--events", "0"], ["run", "extra"]],
)
def test_wrong_usage_is_exit_code_two(arguments: list[str], capsys: Output) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: tailrace" in capsys.readouterr().err


def test_help_lists_every_command_and_imports_none_of_them(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.startswith("tailrace.cli.")]:
        if name != "tailrace.cli.commands":
            monkeypatch.delitem(sys.modules, name)
    with pytest.raises(SystemExit):
        parser("").parse_args(["--help"])
    shown = capsys.readouterr().out
    for name in COMMANDS:
        assert f"    {name}" in shown
        assert f"tailrace.cli.{name.replace('-', '_')}" not in sys.modules


def test_check_prints_the_effective_configuration_without_secrets(capsys: Output) -> None:
    assert main(["check"]) == 0
    printed = capsys.readouterr().out
    assert "hush-hush" not in printed
    shown = yaml.safe_load(printed)
    assert shown["scopes"][0]["name"] == "orders"
    assert shown["http"]["port"] == 9464


def test_check_names_the_scopes_that_deliver_changes_only(
    configure: Configure, capsys: Output
) -> None:
    scopes = [{"name": name, "database": name} for name in "abc"]
    routes = [{"scope": name, "handlers": ["log"]} for name in "abc"]
    scopes[1]["snapshot"] = "initial"
    configure(scopes=scopes, routes=routes)
    assert main(["check"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "snapshot: never" in line
    assert line.endswith(": a, c")
    configure(scopes=scopes[1:2], routes=routes[1:2])
    assert main(["check"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", [["check"], ["health"], ["checkpoints", "list"]])
def test_a_missing_configuration_is_one_line(command: list[str], capsys: Output) -> None:
    assert main([*command, "--config", "nowhere.yaml"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "nowhere.yaml" in line


def test_check_prints_every_problem_with_its_path(configure: Configure, capsys: Output) -> None:
    configure(http={"prt": 1}, delivery={"lanes": "x"})
    assert main(["check"]) == 2
    error = capsys.readouterr().err
    assert "config.yaml: 2 problems" in error
    assert "  http.prt: " in error
    assert "  delivery.lanes: " in error


def test_check_finds_a_target_that_cannot_be_imported(configure: Configure, capsys: Output) -> None:
    configure(handlers={"log": {"type": "python", "target": "no_such_module_here:handle"}})
    assert main(["check"]) == 2
    assert "handlers.log.target" in capsys.readouterr().err


def test_a_handler_module_is_looked_for_beside_the_configuration_first(
    configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    beside = tmp_path / "etc"
    beside.mkdir()
    handlers = {"log": {"type": "python", "target": "looked_for:handle"}}
    configure("etc/config.yaml", handlers=handlers)
    for directory in (tmp_path, beside):
        (directory / "looked_for.py").write_text("async def handle(event): ...\n")
    assert main(["check", "--config", "etc/config.yaml"]) == 0
    assert sys.modules["looked_for"].__file__ == str(beside / "looked_for.py")


def test_positions_are_set_shown_and_reset(capsys: Output) -> None:
    chosen = ["checkpoints", "set", "orders", "--token", '{"_data": "8265"}']
    assert main(["checkpoints", "list"]) == 0
    assert "No checkpoints" in capsys.readouterr().out
    assert main([*chosen, "--dry-run"]) == 0
    assert "Dry run" in capsys.readouterr().out
    assert main(chosen) == 0
    capsys.readouterr()
    assert main(["checkpoints", "show", "orders", "--json"]) == 0
    assert json.loads(json.loads(capsys.readouterr().out)["high_water"]) == {"_data": "8265"}
    assert main(["checkpoints", "reset", "orders"]) == 0
    assert main(["checkpoints", "show", "orders"]) == 2


def test_an_unreachable_server_is_exit_code_one(configure: Configure, capsys: Output) -> None:
    uri = "mongodb://me:hush-hush@localhost:1/?replicaSet=rs0"
    configure(mongodb={"uri": uri, "connect_timeout_seconds": 0.2})
    assert main(["check", "--connect"]) == 1
    error = capsys.readouterr().err
    assert "localhost:1 cannot be reached" in error
    assert "hush-hush" not in error
