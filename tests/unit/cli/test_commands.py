"""The commands as a shell sees them: output and exit codes."""

import argparse
import json
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
import yaml

from tailrace.cli import main
from tailrace.cli.commands import COMMANDS, parser
from tailrace.cli.help_text import EXAMPLES
from tailrace.stores.sqlite import open_store
from tests.contract.stores import checkpoint
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


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["chekpoints", "list"], "checkpoints"),
        (["scopes", "lst"], "list"),
        (["completion", "bush"], "bash"),
        (["check", "--conect"], "--connect"),
        (["scopes", "list", "--jsn"], "--json"),
        (["scopes", "seek", "orders", "--att=x"], "--at"),
        (["--verson"], "--version"),
        (["--verson", "check"], "--version"),
        (["snapshot", "--confg", "x"], ""),
    ],
)
def test_a_mistyped_word_is_answered_with_the_one_that_is_near(
    words: list[str], meant: str, capsys: Output
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    output = capsys.readouterr().err
    assert ended.value.code == 2
    assert (f"Did you mean '{meant}'?" in output) is bool(meant)
    assert (output.count("\n") == 1) is bool(meant)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_has_exit_codes_and_examples_that_work(name: str, capsys: Output) -> None:
    with pytest.raises(SystemExit):
        main([name, "--help"])
    shown = capsys.readouterr().out
    assert "\nexit codes:\n  0 " in shown
    lines = [line.strip() for line in shown.partition("\nexamples:\n")[2].splitlines()]
    examples = [line for line in lines if line.startswith(f"tailrace {name}")]
    assert examples
    for example in examples:
        words = shlex.split(example.partition(" > ")[0].partition(" | ")[0])[1:]
        parser().parse_args(words)


def test_every_verb_has_an_example_of_its_own(capsys: Output) -> None:
    for example in EXAMPLES:
        _, name, verb, *_ = [*example.split(), ""]
        if name in COMMANDS and verb.isalpha() and name not in ("init", "completion"):
            with pytest.raises(SystemExit):
                main([name, verb, "--help"])
            assert example in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_every_command(shell: str, capsys: Output) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS)
    if shell == "bash":
        for words, completed in (
            ("tailrace dead-l", "dead-letters"),
            ("tailrace scopes pos", "positions"),
            ("tailrace why --sc", "--scope"),
        ):
            last = words.count(" ")
            asks = f"COMP_WORDS=({words}); COMP_CWORD={last}; _shtab_tailrace; echo $COMPREPLY"
            asked = subprocess.run(
                ["bash", "-c", f"{script}\n{asks}"], capture_output=True, text=True, check=True
            )
            assert asked.stdout.split() == [completed], asked.stderr


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        ("check", 0, dict),
        ("checkpoints list", 0, list),
        ("dead-letters list", 0, list),
        ("handlers", 0, list),
        ("health", 1, dict),
        ("scopes list", 0, dict),
        ("scopes positions orders", 0, dict),
        ("scopes pause orders", 0, dict),
        ("checkpoints reset orders", 2, None),
    ],
)
def test_what_a_command_prints_can_be_json(
    words: str, code: int, kind: type | None, configure: Configure, capsys: Output
) -> None:
    configure(store={"type": "sqlite", "path": "tailrace.db"}, http={"port": 0})
    assert main([*words.split(), "--json"]) == code
    printed = capsys.readouterr().out
    assert isinstance(json.loads(printed), kind) if kind is not None else printed == ""
    assert "hush-hush" not in printed


@pytest.mark.parametrize(
    "words",
    [
        "replay --json",
        "replay --handler log --dry-run",
        "discard --scope orders",
        "discard 65a00000f3c1 --dry-run",
    ],
)
def test_without_a_daemon_dead_letters_are_listed_and_neither_replayed_nor_discarded(
    words: str, configure: Configure, capsys: Output
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        configure(store={"type": "sqlite", "path": "tailrace.db"}, http={"port": port})
        assert main(["dead-letters", *words.split()]) == 1
        verb, printed = words.split()[0], capsys.readouterr()
        assert (printed.out, printed.err) == (
            "",
            f"tailrace: to {verb} dead letters, the daemon has to run: no answer from "
            f"127.0.0.1:{port}: Connection refused. Does the daemon of config.yaml run on this "
            "machine? Start it with 'tailrace run', then try again; "
            "'tailrace dead-letters list' shows what still waits\n",
        )
        assert main(["dead-letters", "list"]) == 0
        assert capsys.readouterr().out == "No dead letters.\n"
        assert main(["dead-letters", "export"]) == 0


PROGRESS = "init", "migrate", "run", "demo", "pipeline", "completion", "republish", "export"
"""Commands and verbs that print no answer, but progress, a log, a script, a file or JSON lines."""


def test_every_command_and_verb_can_answer_in_json() -> None:
    def without(found: argparse.ArgumentParser) -> Iterator[str]:
        verbs = [each for each in found._actions if isinstance(each, argparse._SubParsersAction)]
        for each in verbs:
            for verb in each.choices.values():
                yield from without(verb)
        if not verbs and "--json" not in found.format_help():
            yield found.prog.split()[-1]

    assert sorted(without(parser().filled(whole=True))) == sorted(PROGRESS)


def test_help_lists_every_command_and_imports_none_of_them(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.startswith("tailrace.cli.")]:
        if name != "tailrace.cli.commands":
            monkeypatch.delitem(sys.modules, name)
    with pytest.raises(SystemExit):
        parser().parse_args(["--help"])
    shown = capsys.readouterr().out
    for name in COMMANDS:
        assert f"    {name}" in shown
    assert "\nexamples:\n  tailrace init" in shown
    assert "\nexit codes:\n  0 " in shown
    for name in COMMANDS:
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


def test_check_refuses_a_variable_of_opentelemetry_in_one_line(
    configure: Configure, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(telemetry={"metrics": True})
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1m")
    assert main(["check"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "telemetry: OTEL_METRIC_EXPORT_INTERVAL is '1m'" in line


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


def test_positions_are_shown_and_reset(configure: Configure, capsys: Output) -> None:
    configure(store={"type": "sqlite", "path": "tailrace.db"})
    assert main(["checkpoints", "list"]) == 0
    assert "No checkpoints" in capsys.readouterr().out
    anyio.run(_save)
    assert main(["checkpoints", "reset", "orders", "--dry-run"]) == 0
    assert "Dry run" in capsys.readouterr().out
    assert main(["checkpoints", "show", "orders", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scope"] == "orders"
    assert main(["checkpoints", "reset", "orders"]) == 0
    assert main(["checkpoints", "show", "orders"]) == 2


async def _save() -> None:
    async with open_store(Path("tailrace.db")) as store:
        await store.checkpoints.save(checkpoint("orders"))


def test_an_unreachable_server_is_exit_code_one(configure: Configure, capsys: Output) -> None:
    uri = "mongodb://me:hush-hush@localhost:1/?replicaSet=rs0"
    configure(mongodb={"uri": uri, "connect_timeout_seconds": 0.2})
    assert main(["check", "--connect"]) == 1
    error = capsys.readouterr().err
    assert "localhost:1 cannot be reached" in error
    assert "hush-hush" not in error
