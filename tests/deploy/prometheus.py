"""A real Prometheus as a process, on a copy of the shipped configuration with shorter times."""

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from tests.daemon import until
from tests.deploy import files
from tests.machine import free_port
from tests.packages import require


class Prometheus:
    """Scrapes one port every half second, with the shipped scrape settings, rules and alerts."""

    def __init__(self, directory: Path, target: int) -> None:
        program = require("prometheus", package="prometheus")
        shutil.copytree(files.PROMETHEUS, directory)
        self._hasten(directory, target)
        self.port = free_port()
        self._log = directory / "log"
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [
                    program,
                    f"--config.file={directory / 'prometheus.yml'}",
                    f"--storage.tsdb.path={directory / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                    "--log.level=warn",
                ],
                stdout=log,
                stderr=log,
            )

    @staticmethod
    def _hasten(directory: Path, target: int) -> None:
        """Changes the target and shortens the times; everything else stays as shipped."""
        path = directory / "prometheus.yml"
        configuration = files.read(path)
        configuration["global"] = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
        (job,) = configuration["scrape_configs"]
        job["static_configs"] = [{"targets": [f"127.0.0.1:{target}"]}]
        path.write_text(yaml.safe_dump(configuration))
        path = directory / "alerts.yml"
        groups = files.read(path)
        for group in groups["groups"]:
            for alert in group["rules"]:
                alert.pop("for", None)
        path.write_text(yaml.safe_dump(groups))

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an API answer; empty while it starts. An error answer fails the test."""
        assert self._process.poll() is None, self._log.read_text()
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode()
            if error.code == 503:
                return None
            raise AssertionError(f"{parameters}: {text}") from None
        except OSError:
            return None

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The current series of the expression."""
        data = self.ask("query", query=expression)
        series: list[dict[str, Any]] = data["result"] if data else []
        return series

    def until(self, expression: str) -> list[dict[str, Any]]:
        """Waits until the expression has a result."""
        found: list[dict[str, Any]] = until(lambda: self.query(expression), expression, 60)
        return found

    def firing(self, name: str) -> list[dict[str, Any]]:
        """The alerts of that name that are firing."""
        data = self.ask("alerts") or {"alerts": []}
        return [
            alert
            for alert in data["alerts"]
            if alert["labels"]["alertname"] == name and alert["state"] == "firing"
        ]

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
