"""The manifests as a cluster would get them: rendered by kubectl, and parsed."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy/kubernetes"
OVERLAYS = ("single", "replicated")


def tool(name: str) -> Path:
    """A program of this Python environment, not of the machine."""
    return Path(sys.executable).with_name(name)


def render(directory: Path) -> str:
    """The documents that `kubectl apply -k` would send."""
    done = subprocess.run(
        [tool("kubectl"), "kustomize", directory], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "warnings of kustomize"
    return done.stdout


class Rendered:
    """The objects of one overlay, as text or parsed, by kind; each kind exists once."""

    def __init__(self, text: str | list[dict[str, Any]]) -> None:
        self.all = list(yaml.safe_load_all(text)) if isinstance(text, str) else text
        self._by_kind = {each["kind"]: each for each in self.all}
        assert len(self._by_kind) == len(self.all)

    def __getitem__(self, kind: str) -> dict[str, Any]:
        return self._by_kind[kind]

    def __contains__(self, kind: str) -> bool:
        return kind in self._by_kind

    @property
    def pod(self) -> dict[str, Any]:
        spec: dict[str, Any] = self["Deployment"]["spec"]["template"]["spec"]
        return spec

    @property
    def labels(self) -> dict[str, str]:
        labels: dict[str, str] = self["Deployment"]["spec"]["template"]["metadata"]["labels"]
        return labels

    @property
    def container(self) -> dict[str, Any]:
        (container,) = self.pod["containers"]
        found: dict[str, Any] = container
        return found

    @property
    def configuration(self) -> str:
        text: str = self["ConfigMap"]["data"]["config.yaml"]
        return text

    def mounted(self, volume: str) -> Path:
        """The path at which the container sees a volume."""
        (mount,) = (each for each in self.container["volumeMounts"] if each["name"] == volume)
        return Path(mount["mountPath"])
