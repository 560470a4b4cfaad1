"""Why a daemon does not start, as in a container's log: one JSON line and the exit code."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checkout import IMPORTS
from tests.daemon import WAIT_SECONDS
from tests.machine import free_port
from tests.orders import Orders

ENVIRON = {**os.environ, "PYTHONPATH": IMPORTS}
RUN = [sys.executable, "-m", "tailrace", "run"]


def configuration(**sections: Any) -> dict[str, Any]:
    return {
        "mongodb": {"uri": "mongodb://127.0.0.1:1/?replicaSet=rs0", "connect_timeout_seconds": 0.2},
        "store": {"path": "data/tailrace.db"},
        "http": {"port": 0},
        "scopes": [{"name": "orders", "database": "shop"}],
        "handlers": {"log": {"type": "log"}},
        "routes": [{"scope": "orders", "handlers": ["log"]}],
        **sections,
    }


def ended(directory: Path, content: dict[str, Any], **environ: str) -> tuple[int, str]:
    """The exit code of `tailrace run`, and its output on both streams."""
    (directory / "config.yaml").write_text(yaml.safe_dump(content))
    with (directory / "log").open("wb") as log:
        environ = {**ENVIRON, **environ}
        code = subprocess.call(RUN, cwd=directory, env=environ, stdout=log, stderr=log)
    return code, (directory / "log").read_text()


def test_an_invalid_configuration_is_one_line_of_json_and_code_2(tmp_path: Path) -> None:
    sections = configuration(mongodb={"uri_file": "/run/secrets/not/there"}, http={"port": "x"})
    code, log = ended(tmp_path, sections)
    assert code == 2
    (line,) = map(json.loads, log.splitlines())
    assert line["event"] == "service.refused"
    assert "mongodb.uri_file: the file '/run/secrets/not/there' no such file" in line["reason"]


def test_tailrace_config_names_another_configuration(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.yaml"
    code, log = ended(tmp_path, configuration(), TAILRACE_CONFIG=str(elsewhere))
    assert code == 2
    assert json.loads(log)["reason"] == f"{elsewhere}: no such file"


def test_an_internal_error_is_one_line_too(tmp_path: Path) -> None:
    """An unexpected failure: here a module that breaks when its signature is read."""
    (tmp_path / "mine.py").write_text(
        "class Odd:\n"
        "    @property\n"
        "    def __signature__(self): raise SystemError('unforeseen')\n"
        "    async def __call__(self, event): ...\n"
        "handle = Odd()\n"
    )
    handlers = {"log": {"type": "python", "target": "mine:handle"}}
    code, log = ended(tmp_path, configuration(handlers=handlers))
    assert code == 1
    (line,) = map(json.loads, log.splitlines())
    assert (line["event"], line["exit_code"]) == ("service.crashed", 1)
    assert "SystemError: unforeseen" in line["exception"]


@pytest.mark.parametrize(
    ("no_color", "name"), [("1", "tailrace:"), ("", "\x1b[31mtailrace:\x1b[0m")]
)
def test_a_terminal_gets_text_in_colour_unless_no_color_is_set(
    tmp_path: Path, no_color: str, name: str
) -> None:
    parent, child = pty.openpty()
    command = [*RUN, "--config", "nowhere.yaml"]
    environ = {**ENVIRON, "TERM": "xterm", "NO_COLOR": no_color}
    process = subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=child)
    try:
        assert process.wait(WAIT_SECONDS) == 2
        assert os.read(parent, 1000).decode().strip() == f"{name} nowhere.yaml: no such file"
    finally:
        process.kill()
        os.close(parent)
        os.close(child)


def test_a_stop_before_the_start_is_a_clean_end(tmp_path: Path) -> None:
    """Else process 1 of a container would ignore the signal, and be killed after the grace."""
    pipe = tmp_path / "config.yaml"
    os.mkfifo(pipe)
    process = subprocess.Popen(RUN, cwd=tmp_path, env=ENVIRON)
    try:
        with pipe.open("wb"):  # returns as soon as the other side reads
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_SECONDS) == 0
    finally:
        process.kill()
        process.wait()


def test_health_is_asked_with_the_configuration_of_the_daemon(orders: Orders) -> None:
    run = orders.daemon(http={"port": free_port()}).start()
    assert run.command("health", "--config", "config.yaml") == "ok\n"
    assert run.command("health", "--ready", "--config", "config.yaml") == "ok\n"
    assert run.stop() == 0
    command = [sys.executable, "-m", "tailrace", "health"]
    done = subprocess.run(command, cwd=run.directory, env=ENVIRON, capture_output=True, check=False)
    assert done.returncode == 1
    assert b"Connection refused" in done.stderr
