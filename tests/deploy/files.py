"""The files below `deploy/` that Prometheus and Grafana read."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
PROMETHEUS = DEPLOY / "prometheus"
CASES = sorted((PROMETHEUS / "tests").glob("*.yml"))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def rules(name: str) -> list[dict[str, Any]]:
    """All rules of a file."""
    return [rule for group in read(PROMETHEUS / name)["groups"] for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return rules("alerts.yml")


def recorded() -> list[dict[str, Any]]:
    return rules("rules.yml")


def dashboard() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    return document


@dataclass(frozen=True, slots=True)
class Query:
    """One expression of the dashboard, and where it is."""

    panel: str
    expression: str

    def filled(self, job: str) -> str:
        """The expression with the dashboard's variables replaced as in Grafana."""
        text = self.expression.replace("$__rate_interval", "20s").replace("$job", job)
        return text.replace("$instance", ".*").replace("$scope", ".*")


def queries() -> list[Query]:
    """All expressions of the panels and annotations."""
    document = dashboard()
    found = [
        Query(panel["title"], target["expr"])
        for panel in document["panels"]
        for target in panel.get("targets", ())
    ]
    noted = document["annotations"]["list"]
    return found + [Query(note["name"], note["expr"]) for note in noted if "expr" in note]
