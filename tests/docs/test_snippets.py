"""Every snippet of the README and docs/ is correct: it runs, loads or parses."""

import asyncio
import inspect
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tailrace import ChangeEvent
from tailrace.cli import main
from tests import added_types
from tests.checkout import ROOT

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
IN_SPARK = ("tables.md", "spark.md")
"""What these pages show runs with Spark: tests/pipeline/test_queries.py, test_source_docs.py."""

INSERT = {
    "_id": {"_data": "826566"},
    "operationType": "insert",
    "ns": {"db": "shop", "coll": "orders"},
    "documentKey": {"_id": 1},
    "fullDocument": {"_id": 1, "state": "new"},
}


@dataclass(frozen=True)
class Snippet:
    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def snippets(language: str) -> list[Snippet]:
    return [each for page in PAGES for each in _of(page) if each.language == language]


def _of(page: Path) -> Iterator[Snippet]:
    text = page.read_text()
    for found in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield Snippet(page, text.count("\n", 0, found.start()) + 2, found[1], found[2])


@pytest.mark.parametrize(
    "snippet", [each for each in snippets("python") if each.page.name not in IN_SPARK], ids=str
)
def test_python_runs_and_its_handlers_take_an_event_and_its_tests_pass(
    snippet: Snippet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.py").write_text(shop(snippet.page))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shop", raising=False)  # of another page
    names: dict[str, Any] = {"__name__": "snippet"}
    exec(compile(snippet.text, str(snippet), "exec"), names)
    functions = {name: one for name, one in names.items() if inspect.iscoroutinefunction(one)}
    for name in (tests := [name for name in functions if name.startswith("test_")]):
        parameters = inspect.signature(functions[name]).parameters
        asyncio.run(functions[name](*[tmp_path for _ in parameters]))
    for name in functions if not tests else ():
        if name.startswith(("on_", "forward")):
            [parameter, *_] = inspect.signature(functions[name]).parameters
            event = ChangeEvent.from_document(INSERT)
            asyncio.run(functions[name](event if parameter == "event" else [event]))


def shop(page: Path) -> str:
    """The module ``shop`` of a page: what its snippets define, without their tests."""
    of_page = [each.text for each in snippets("python") if each.page == page]
    return "\n\n".join(
        ["async def on_order(event): ..."]
        + [each for each in of_page if "tailrace" in each and "from shop import" not in each]
    )


@pytest.mark.parametrize("snippet", snippets("yaml"), ids=str)
def test_yaml_is_a_configuration_that_is_accepted(
    snippet: Snippet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A partial configuration is completed first; its targets are the page's own."""
    minimal = {
        "mongodb": {"uri": "mongodb://localhost/?replicaSet=rs0"},
        "scopes": [{"name": "orders", "database": "shop", "full_document": "lookup"}],
        "handlers": {"log": {"type": "log"}},
        "routes": [{"scope": "orders", "handlers": ["log"]}],
    }
    document = yaml.safe_load(snippet.text)
    document = document.get("config", document)  # of the chart's values
    if "handlers" in document and "routes" not in document:
        document["routes"] = [{"scope": "orders", "handlers": list(document["handlers"])}]
    (tmp_path / "shop.py").write_text(shop(snippet.page))
    (tmp_path / "hash.key").write_text("0123456789abcdef")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(minimal | document))
    added_types.install_documented(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    for module in ("shop", "tailrace_archive"):  # of another page
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.delenv("MONGODB_URI", raising=False)
    for name in re.findall(r"\$\{(\w+)\}", snippet.text):
        words = {"URI": "mongodb://localhost", "SECRET": "whsec_c2VjcmV0", "DSN": "host=localhost"}
        value = next((text for word, text in words.items() if word in name), "https://localhost/x")
        monkeypatch.setenv(name, value)
    code = main(["check", "--config", "config.yaml"])
    assert code == 0, capsys.readouterr().err


@pytest.mark.parametrize("snippet", snippets("yml"), ids=str)
def test_yml_is_a_declarative_pipeline_that_spark_accepts(snippet: Snippet) -> None:
    """``tests/spark/test_connect.py`` runs it."""
    from pyspark.pipelines.cli import unpack_pipeline_spec

    pipeline = unpack_pipeline_spec(yaml.safe_load(snippet.text))
    (source,) = (ROOT / "docs" / "examples" / each.include for each in pipeline.libraries)
    assert all(name in source.read_text() for name in pipeline.configuration)


def commands() -> Iterator[list[str]]:
    for snippet in snippets("sh"):
        for line in snippet.text.splitlines():
            if line.startswith("tailrace "):
                yield shlex.split(line, comments=True)[1:]


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_a_command_has_the_arguments_that_are_shown(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """With ``--help`` it exits 0 if the command exists, and the help has the options."""
    named = [word for word in words if not word.startswith("-")]
    grouped = ("checkpoints", "columns", "dead-letters", "tables")
    command = named[:2] if named[0] in grouped else named[:1]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for option in (word for word in words if word.startswith("--")):
        assert option in shown, option


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, heading = link.partition("#")
        if path.startswith(("http://", "https://")):
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if heading:
            assert heading in _anchors(target), link


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings}
