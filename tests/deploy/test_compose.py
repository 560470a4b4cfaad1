"""The compose files are valid, and their parts agree with the image and with each other."""

import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from tailrace.shutdown import CLOSING_SECONDS
from tests.configuration import load
from tests.deploy.manifests import ROOT, tool

DEPLOY = ROOT / "deploy"
FILE = DEPLOY / "compose.yaml"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text())["services"]
PROJECT = ROOT / "service/tailrace/cli/project/compose.yaml"
"""The file that ``tailrace init`` writes."""
IMAGE_CONFIGURATION = DEPLOY / "docker/config.yaml"
ENVIRON = {**SERVICES["tailrace"]["environment"], "TAILRACE_DATABASE": ""}
"""The environment of the service if the operator has set nothing."""


@pytest.mark.parametrize("file", [*sorted(DEPLOY.glob("compose*.yaml")), PROJECT], ids=str)
def test_each_compose_file_fits_the_specification(file: Path) -> None:
    done = subprocess.run(
        [tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_variable_of_compose_is_one_that_the_image_reads() -> None:
    read = set(re.findall(r"\$\{([A-Z_]+)", IMAGE_CONFIGURATION.read_text()))
    assert set(SERVICES["tailrace"]["environment"]) <= read


def test_the_configuration_that_results_drains_before_it_is_killed() -> None:
    settings = load(IMAGE_CONFIGURATION, ENVIRON)
    (scope,) = settings.scopes
    assert (scope.database, scope.full_document) == (None, "lookup")
    longest = settings.shutdown.grace_seconds + CLOSING_SECONDS
    assert float(SERVICES["tailrace"]["stop_grace_period"].removesuffix("s")) > longest


def test_the_connection_string_leads_to_the_replica_set_that_is_initiated() -> None:
    uri = urlsplit(SERVICES["tailrace"]["environment"]["MONGODB_URI"])
    assert uri.hostname in SERVICES
    (name,) = parse_qs(uri.query)["replicaSet"]
    assert SERVICES["mongodb"]["command"][1:3] == ["--replSet", name]
    (script,) = SERVICES["mongodb-init"]["command"]
    assert f'_id: "{name}", members: [{{_id: 0, host: "{uri.netloc}"}}]' in script
    order = SERVICES["tailrace"]["depends_on"]["mongodb-init"]
    assert order == {"condition": "service_completed_successfully"}


def test_the_service_runs_with_no_more_rights_than_it_needs() -> None:
    ours = SERVICES["tailrace"]
    assert ours["read_only"] is True
    assert ours["cap_drop"] == ["ALL"]
    assert ours["security_opt"] == ["no-new-privileges:true"]
    assert ours["mem_limit"] == "256m"
    assert "user" not in ours
    assert "privileged" not in ours


def test_a_written_project_has_the_same_server_and_rights() -> None:
    written = yaml.safe_load(PROJECT.read_text())["services"]
    assert written["mongodb-init"] == SERVICES["mongodb-init"]
    assert {**written["mongodb"], "ports": None} == {**SERVICES["mongodb"], "ports": None}
    for key in ("read_only", "cap_drop", "security_opt", "mem_limit", "stop_grace_period"):
        assert written["tailrace"][key] == SERVICES["tailrace"][key]


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_open_to_this_machine_only(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert port.startswith("127.0.0.1:")


def test_prometheus_and_grafana_look_where_the_others_are() -> None:
    prometheus = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    (job,) = prometheus["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    name, _, port = target.partition(":")
    assert name in SERVICES
    settings = load(IMAGE_CONFIGURATION, ENVIRON)
    assert int(port) == settings.http.port
    for rules in prometheus["rule_files"]:
        assert (DEPLOY / "prometheus" / rules).exists()
    (source_file,) = (DEPLOY / "grafana/provisioning/datasources").iterdir()
    (source,) = yaml.safe_load(source_file.read_text())["datasources"]
    url = urlsplit(source["url"])
    assert (url.hostname in SERVICES, url.port) == (True, 9090)
    (provider_file,) = (DEPLOY / "grafana/provisioning/dashboards").iterdir()
    (provider,) = yaml.safe_load(provider_file.read_text())["providers"]
    mounts = [volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]]
    assert f"{provider['options']['path']}/dashboard.json" in mounts
