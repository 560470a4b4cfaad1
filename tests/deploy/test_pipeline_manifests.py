"""The manifests of the pipeline: valid by the validators, and consistent with the command."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tailrace.cli.commands import parser
from tailrace.config.pipeline_file import load_pipeline
from tests.deploy.manifests import KUBERNETES, ROOT, render, tool

PIPELINE = KUBERNETES / "pipeline"
WAYS = ("continuous", "periodic")


def objects(way: str) -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all(render(PIPELINE / way))}


def pod(way: str) -> dict[str, Any]:
    found = objects(way)
    if way == "periodic":
        template = found["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]
    else:
        template = found["Deployment"]["spec"]["template"]
    spec: dict[str, Any] = template["spec"]
    return spec


@pytest.mark.parametrize("way", WAYS)
def test_each_object_is_valid_and_its_command_parses(way: str, tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(render(PIPELINE / way))
    command = [tool("kubernetes-validate"), "--strict", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (container,) = pod(way)["containers"]
    options = parser().parse_args(container["args"])
    assert options.once == (way == "periodic")
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "config")
    assert Path(options.config).parent == Path(mount["mountPath"])


@pytest.mark.parametrize("way", WAYS)
def test_its_configuration_needs_no_mongodb_and_listens_where_it_is_asked(
    way: str, tmp_path: Path
) -> None:
    file = tmp_path / "config.yaml"
    found = objects(way)
    file.write_text(found["ConfigMap"]["data"]["config.yaml"])
    settings = load_pipeline(file, {})
    assert str(settings.lake).startswith("s3://")
    (container,) = pod(way)["containers"]
    ports = [each["containerPort"] for each in container.get("ports", ())]
    assert ports in ([], [settings.http.port])
    for name in ("startupProbe", "livenessProbe", "readinessProbe") if ports else ():
        assert container[name]["httpGet"]["path"] in ("/livez", "/readyz")


def test_no_selector_of_the_daemon_takes_a_pod_of_the_pipeline() -> None:
    labels = objects("continuous")["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for each in yaml.safe_load_all(render(KUBERNETES / "overlays" / "single")):
        selector = each.get("spec", {}).get("selector")
        wanted = (selector or {}).get("matchLabels", selector) or {}
        assert not wanted or not wanted.items() <= labels.items(), each["kind"]


def test_the_spark_application_runs_our_command_in_the_image_of_the_page() -> None:
    """Its kind is the operator's, which no validator here knows."""
    application = yaml.safe_load((PIPELINE / "spark-application.yaml").read_text())
    assert application["kind"] == "SparkApplication"
    spec = application["spec"]
    parser().parse_args(spec["arguments"])
    page = (ROOT / "docs" / "pipeline.md").read_text()
    copied = spec["mainApplicationFile"].removeprefix("local://")
    assert f" {copied}" in page
    for part in ("driver", "executor"):
        assert re.fullmatch(r"\d+g", spec[part]["memory"])
        assert spec["sparkConf"][f"spark.{part}.extraClassPath"].removesuffix("/*") in page
