"""The chart as `helm template` renders it, by Helm's own code in a process of its own.

The library is written in Go, and its runtime stays in a process that has loaded it. So no process
of the tests loads it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import yaml

from tests.checkout import ROOT
from tests.deploy.manifests import Rendered

CHART = ROOT / "deploy/helm/tailrace"


class Refused(Exception):
    """Helm's error."""


class Helm:
    """A process that renders the chart, one request a line."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate(timeout=60)

    def template(self, values: dict[str, Any], name: str = "tailrace") -> list[dict[str, Any]]:
        """The objects that `helm template NAME CHART --values …` prints."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"values": values, "name": name}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise Refused(answer["error"])
        texts = [text for path, text in answer["files"].items() if path.endswith(".yaml")]
        return [one for text in texts for one in yaml.load_all(text, yaml.CSafeLoader) if one]

    def daemon(self, values: dict[str, Any], name: str = "tailrace") -> Rendered:
        """The objects of the daemon, without those that only `helm test` makes."""
        return Rendered([one for one in self.template(values, name) if not _of_a_test(one)])


def _of_a_test(one: dict[str, Any]) -> bool:
    return "helm.sh/hook" in one["metadata"].get("annotations", {})


def _serve() -> None:
    import helm_python

    with helm_python.Chart.load(str(CHART)) as chart:
        for line in sys.stdin:
            request = json.loads(line)
            try:
                files = chart.render(request["values"], name=request["name"], namespace="tailrace")
                answer: dict[str, Any] = {"files": files}
            except helm_python.HelmError as error:
                answer = {"error": str(error)}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve()
