"""The runbook covers every alert, error and command."""

import inspect
import re
import shlex
from contextlib import redirect_stdout
from functools import cache
from io import StringIO

import pytest

from tailrace import errors
from tailrace.cli.commands import parser
from tailrace.engine.error_policy import REFUSALS, Blame, Reason
from tailrace.snapshot.filter import canonical
from tests.deploy import files
from tests.deploy.promql import exported_names

TEXT = (files.DEPLOY / "runbook.md").read_text()

# Base classes that are never raised, and errors of a normal stop; no operator sees these.
NOT_MET = {
    "TailraceError",
    "DriverError",
    "StreamError",
    "StreamInterrupted",
    "DeliveryInterrupted",
}


def sections() -> dict[str, str]:
    """The text below each heading, up to the next heading of any level."""
    parts = re.split(r"^#+ (.+)$", TEXT, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def anchor(heading: str) -> str:
    """The anchor as GitHub makes it: lower case, hyphens for spaces, no other punctuation."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


ANCHORS = {anchor(heading) for heading in sections()}


@pytest.mark.parametrize("alert", files.alerts(), ids=lambda alert: alert["alert"])
def test_each_alert_leads_to_the_heading_of_its_name(alert: dict[str, dict[str, str]]) -> None:
    path, _, there = alert["annotations"]["runbook_url"].partition("#")
    assert files.DEPLOY.parent.joinpath(path).read_text() == TEXT
    assert there == anchor(str(alert["alert"]))
    assert there in ANCHORS


def test_no_heading_names_a_removed_alert() -> None:
    alerts = {alert["alert"] for alert in files.alerts()}
    assert {heading for heading in sections() if heading.startswith("Tailrace")} == alerts


def test_each_reason_has_a_heading() -> None:
    headings = {heading.strip("`") for heading in sections() if heading.startswith("`")}
    assert headings == {reason.value for reason in Reason}


def test_each_alert_and_each_reason_says_what_it_means_and_what_was_lost() -> None:
    for heading, text in sections().items():
        if heading.startswith(("Tailrace", "`")):
            assert "**Means.**" in text, heading
            assert "**Lost.**" in text, heading
        if heading.startswith("Tailrace"):
            assert "**Do.**" in text, heading


def test_each_error_that_an_operator_can_see_has_a_heading_and_advice() -> None:
    met = {
        name
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, errors.TailraceError)
    } - NOT_MET
    for name in met:
        assert "**Do.**" in sections().get(name, ""), name


def test_each_code_that_halts_a_scope_is_documented() -> None:
    waits = sections()["`access`"] + sections()["CommandFailed"]
    for code, (blame, _) in REFUSALS.items():
        section = waits if blame is Blame.MOMENT else sections()["`refused`"]
        assert re.search(rf"^\|.*\b{code}\b.*\|.*\|", section, re.MULTILINE), code


def commands() -> list[str]:
    """All commands of ours, in blocks and in the text, without a comment after them."""
    written = re.findall(r"^(tailrace .*?)(?:\s+#.*)?$", TEXT, re.MULTILINE)
    return sorted({*written, *re.findall(r"`(?:[^`]* )?(tailrace [a-z][^`]*)`", TEXT)})


@cache
def help_of(*command: str) -> str:
    """The help text of a command; fails if the command does not exist."""
    with redirect_stdout(StringIO()) as printed, pytest.raises(SystemExit) as ended:
        parser().parse_args([*command, "--help"])
    assert ended.value.code == 0, command
    return printed.getvalue()


@pytest.mark.parametrize("command", commands())
def test_each_command_exists_with_its_options(command: str) -> None:
    words = shlex.split(command)[1:]
    verbs = [words[0]]
    if words[0] in ("checkpoints", "columns", "dead-letters", "snapshot", "tables"):
        verbs.append(words[1])
    help_text = help_of(*verbs)
    for option in (word for word in words if word.startswith("-")):
        assert re.search(rf"{option}(?![\w-])", help_text), option


SYMPTOMS = [
    *("A document is missing", "A document is old", "A table is behind", "Nothing arrives"),
    *("The same event again and again", "Memory grows", "It restarts"),
]


def blocks(heading: str) -> list[str]:
    """The lines of the shell blocks below a heading."""
    found = re.findall(r"^```sh\n(.*?)^```$", sections()[heading], re.MULTILINE | re.DOTALL)
    return "".join(found).splitlines()


@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_each_symptom_has_commands_that_parse(symptom: str) -> None:
    ours = [line for line in blocks(symptom) if line.startswith("tailrace ")]
    assert ours
    for line in ours:
        words = shlex.split(line, comments=True)[1:]
        parser().parse_args(words)


@pytest.mark.parametrize("symptom", ["A document is missing", "A document is old"])
def test_one_document_is_repaired_with_a_filter_that_is_accepted(symptom: str) -> None:
    (line,) = [line for line in blocks(symptom) if " --filter " in line]
    assert canonical(parser().parse_args(shlex.split(line)[1:]).filter)


def test_each_metric_that_is_named_exists() -> None:
    known = exported_names()
    named = set(re.findall(r"`(tailrace_[a-z_]+)", TEXT))
    assert named
    for name in named:
        assert name in known or f"{name}_sum" in known, name
