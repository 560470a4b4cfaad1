"""The command of an action is made from its request; a further action is a module and a row."""

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from types import ModuleType
from typing import Annotated, Any

import pytest
from structlog.testing import capture_logs

from tailrace.cli import main
from tailrace.cli.action_command import add_options, given_in
from tailrace.control.action import Action
from tailrace.control.action_table import TABLE
from tailrace.control.actions.replay import ReplayBody
from tailrace.control.bodies import HandlerQuery, Metavar
from tailrace.control.openapi import document
from tailrace.control.outcome import Done
from tailrace.control.routes import routes
from tests.unit.cli.conftest import Configure
from tests.unit.observe.serving import Service, serving

Output = pytest.CaptureFixture[str]


class GreetBody(HandlerQuery):
    """Greets a scope."""

    times: int = 1
    """How often, in 100 % of cases."""
    word: Annotated[str, Metavar("WORD")] = "hello"
    """The word of the `greeting`."""


async def greet(control: Any, scope: str, body: GreetBody, by: str) -> Done:
    return Done(f"{body.word}, {scope}")


@pytest.fixture
def greeting(monkeypatch: pytest.MonkeyPatch) -> Action:
    module: Any = ModuleType("tailrace.control.actions.greet")
    module.GREET = action = Action("POST", "/scopes/{name}/greet", GreetBody, greet)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(TABLE, "greet.GREET", "scopes greet")
    return action


def test_a_row_of_the_table_is_a_route_a_document_and_a_command(
    greeting: Action, configure: Configure, capsys: Output
) -> None:
    assert greeting in routes()
    operation = document(routes())["paths"]["/scopes/{name}/greet"]["post"]
    assert operation["summary"] == "Greets a scope."
    with pytest.raises(SystemExit):
        main(["scopes", "greet", "--help"])
    shown = capsys.readouterr().out
    assert "Greets a scope." in shown
    assert "--word WORD     The word of the greeting." in shown
    with capture_logs(), serving(service := Service()) as client:
        configure(http={"port": client.base_url.port})
        words = ["scopes", "greet", "orders", "--word", "bye", "--handler", "log", "--times", "2"]
        assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"message": "greet is done"}
    assert service.ordered == [("orders", "greet", (), "")]


class LookQuery(HandlerQuery):
    """Looks at a scope."""

    often: bool = False
    """More than once."""


async def look(control: Any, scope: str, query: LookQuery, by: str) -> Any:
    return {"message": f"{scope} {query.often}"}


def test_an_action_that_only_reads_is_asked_with_a_query(
    monkeypatch: pytest.MonkeyPatch, configure: Configure, capsys: Output
) -> None:
    module: Any = ModuleType("tailrace.control.actions.look")
    module.LOOK = Action("GET", "/scopes/{name}/look", LookQuery, look)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(TABLE, "look.LOOK", "look")

    class Looking(Service):
        async def perform(self, action: Action, about: str, request: Any) -> Any:
            return await look(self, about, request, "")

    with capture_logs(), serving(Looking()) as client:
        configure(http={"port": client.base_url.port})
        assert main(["look", "orders", "--often"]) == 0
    assert capsys.readouterr().out == "orders True\n"


def test_the_options_give_the_keys_of_the_request() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, ReplayBody)
    words = ["--from", "12:00", "--key", "1", "--key", "2", "--collection", "a", "--dry-run"]
    assert given_in(parser.parse_args(words), ReplayBody) == {
        "from": "12:00",
        "keys": ["1", "2"],
        "collections": ["a"],
        "dry_run": True,
    }
    assert given_in(parser.parse_args([]), ReplayBody) == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pause", "ordrs"], "scope 'ordrs': is not in config.yaml, which has: orders. Did you"),
        (["pause", "orders", "--handler", "x"], "--handler: scope 'orders' has no handler 'x'; it"),
        (["replay", "odd"], "scope 'odd': is not in config.yaml"),
    ],
)
def test_a_name_that_is_not_configured_is_refused_without_a_daemon(
    words: list[str], message: str, configure: Configure, capsys: Output
) -> None:
    configure()
    assert main(["scopes", *words]) == 2
    assert message in capsys.readouterr().err


def test_an_effect_that_has_not_come_is_exit_code_one_if_it_is_waited_for(
    configure: Configure, capsys: Output
) -> None:
    class Late(Service):
        async def perform(self, action: Action, about: str, request: Any) -> Any:
            done = await super().perform(action, about, request)
            return replace(done, details={"effective": False})

    with capture_logs(), serving(Late()) as client:
        configure(http={"port": client.base_url.port})
        assert main(["scopes", "pause", "orders"]) == 0
        assert main(["scopes", "pause", "orders", "--wait", "0"]) == 1
    assert "pause is done" in capsys.readouterr().err


def test_a_command_that_asks_the_daemon_imports_only_what_it_needs(configure: Configure) -> None:
    heavy = "bson", "structlog", "anyio", "prometheus_client", "tailrace.engine", "tailrace.stores"
    code = (
        "import sys; from tailrace.cli import main; main(['scopes', 'pause', 'orders']); "
        f"print(*(name for name in {heavy} if name in sys.modules))"
    )
    with capture_logs(), serving(Service()) as client:
        configure(http={"port": client.base_url.port})
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout == "pause is done\n\n", ran.stderr
