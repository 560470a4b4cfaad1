"""One form for all log lines: ours, and those of libraries."""

import json
import logging
import re
import sys
import warnings
from collections.abc import Iterator

import pytest
import structlog

from tailrace.observe.logs import LONGEST_VALUE, configure


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    for name in ("uvicorn", "pymongo", "motor"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    """The JSON lines on standard error; nothing may be on standard output."""
    written = capsys.readouterr()
    assert written.out == ""
    return [json.loads(line) for line in written.err.splitlines()]


def fail() -> None:
    raise LookupError("of a\nspecial kind")


def test_format_json_writes_a_line_as_one_object_with_time_level_and_data(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure("info", "json")
    structlog.get_logger().bind(scope="orders").info("stream.resumed", reason="a\nb", n=3)
    (line,) = lines(capsys)
    stamp = line.pop("timestamp")
    assert isinstance(stamp, str)
    assert stamp.endswith("Z")
    assert line == {
        "event": "stream.resumed",
        "level": "info",
        "scope": "orders",
        "reason": "a\nb",
        "n": 3,
    }


@pytest.mark.parametrize("name", ["uvicorn.error", "pymongo.command", "motor"])
def test_our_libraries_speak_from_warning_on(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """At ``debug`` a driver logs its commands, and their documents."""
    configure("debug", "json")
    library = logging.getLogger(name)
    library.info("quiet")
    library.warning("loud")
    assert [line["event"] for line in lines(capsys)] == ["loud"]


@pytest.mark.parametrize(
    ("level", "heard"),
    [("debug", ["one", "two", "three"]), ("info", ["two", "three"]), ("warning", ["three"])],
)
def test_level_is_the_lowest_that_is_logged_of_handlers_too(
    capsys: pytest.CaptureFixture[str], level: str, heard: list[str]
) -> None:
    configure(level, "json")
    mine = logging.getLogger("shop.handlers")
    mine.debug("one")
    mine.info("two")
    mine.warning("three", extra={"order": 7})
    written = lines(capsys)
    assert [line["event"] for line in written] == heard
    assert {line["logger"] for line in written} == {"shop.handlers"}
    assert written[-1]["order"] == 7
    assert "timestamp" in written[-1]


def test_a_value_of_any_length_is_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "json")
    structlog.get_logger().info("x", text="a" * 1_000_000)
    logging.getLogger("mine").error("b" * 1_000_000)
    try:
        raise ValueError("c" * 1_000_000)
    except ValueError:
        logging.getLogger("mine").exception("failed")
    written = capsys.readouterr().err.splitlines()
    assert [len(line) < LONGEST_VALUE + 1000 for line in written] == [True] * 3
    assert all("characters left out" in line for line in written)


@pytest.mark.parametrize(
    ("terminal", "no_colour", "coloured"),
    [(False, "", False), (True, "", True), (True, "1", False)],
)
def test_the_console_has_colours_in_a_terminal_that_wants_them(
    terminal: bool,
    no_colour: str,
    coloured: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    configure("info", "console")
    structlog.get_logger().info("stream.resumed", scope="orders")
    written = capsys.readouterr().err
    assert "stream.resumed" in written
    assert ("\x1b[" in written) is coloured
    assert coloured or "scope=orders" in written


@pytest.mark.parametrize(
    ("choice", "terminal", "expected"),
    [
        ("auto", True, "console"),
        ("auto", False, "json"),
        ("json", True, "json"),
        ("console", False, "console"),
    ],
)
def test_lines_on_a_terminal_are_for_people(
    choice: str,
    terminal: bool,
    expected: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    configure("info", choice)
    structlog.get_logger().info("service.starting", page="http://127.0.0.1:9464/", changes_need="")
    written = capsys.readouterr().err
    if expected == "json":
        assert json.loads(written)["page"] == "http://127.0.0.1:9464/"
    else:
        assert re.match(r"[-\d]+ [:\d]+Z \[info +\] service.starting +page=http://127", written)


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_password_in_a_url_is_masked_whoever_logs_it(
    capsys: pytest.CaptureFixture[str], style: str
) -> None:
    configure("info", style)
    url = "amqp://me:hunter2@broker/?x=1"
    structlog.get_logger().info("handler.failed", error=f"cannot reach {url}")
    logging.getLogger("aio_pika").warning("cannot reach %s", url)
    try:
        raise OSError(f"cannot reach {url}")
    except OSError as error:
        structlog.get_logger().warning("watcher.restarting", exc_info=error)
        logging.getLogger("aio_pika").exception("lost")
    written = capsys.readouterr().err
    assert written.count("amqp://me:***@broker/?x=1") == 4
    assert "hunter2" not in written


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_secret_is_masked_by_its_name_however_deep_it_is(
    capsys: pytest.CaptureFixture[str], style: str
) -> None:
    configure("info", style)
    headers = {"Authorization": "Bearer hunter2", "tries": [{"api_key": "hunter2"}]}
    structlog.get_logger().info("request.failed", headers=headers, password="hunter2")
    logging.getLogger("httpx").warning("refused", extra={"headers": headers, "pwd": "hunter2"})
    structlog.get_logger().info("event.received", token="82650000", error=OSError("pwd=hunter2"))
    written = capsys.readouterr().err
    assert "hunter2" not in written
    assert written.count("***") == 7
    assert "82650000" in written


def test_a_traceback_on_a_console_shows_no_variables(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "console")
    password = "hunter" + str(len("ab"))
    try:
        assert password
        fail()
    except LookupError as error:
        structlog.get_logger().warning("watcher.restarting", exc_info=error)
    written = capsys.readouterr().err
    assert "LookupError: of a" in written
    assert "hunter2" not in written


def test_what_python_warns_of_is_a_line_like_others(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        configure("info", "json")
        warnings.warn("zstandard is not installed", RuntimeWarning, stacklevel=1)
    (line,) = lines(capsys)
    assert (line["event"], line["level"]) == ("python.warned", "warning")
    assert (line["category"], line["warning"]) == ("RuntimeWarning", "zstandard is not installed")
