"""What `helm template` and `kubectl kustomize` make of deploy/, in one form that can be compared."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml
from tools.chart.manifests import CLUSTER_WIDE

from headgate.cli.main import run
from headgate.testing.control_plane.assets import KUBECTL, find_assets
from headgate.testing.control_plane.packaging import HELM, find_tool

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "headgate"
NAMESPACE = "headgate-system"

Key = tuple[str, str, str, str]


def helm(*arguments: str, namespace: str = NAMESPACE, hooks: bool = False) -> subprocess.CompletedProcess[str]:
    """`helm template` of the chart. Raises NoAssetsError without helm."""
    flags = [] if hooks else ["--no-hooks"]
    return subprocess.run(
        [str(find_tool(HELM)), "template", "headgate", str(CHART), "-n", namespace, *flags, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def rendered(*arguments: str, namespace: str = NAMESPACE, hooks: bool = False) -> list[Any]:
    """The objects of the chart."""
    done = helm(*arguments, namespace=namespace, hooks=hooks)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def kustomized(folder: Path) -> list[Any]:
    """The objects of a kustomization. Raises NoAssetsError without kubectl."""
    command = [str(find_assets().binary(KUBECTL)), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def with_keys(folder: Path) -> Path:
    """A copy of deploy/ with the keys and users that its NATS overlay needs. The folder of its kustomizations."""
    copy = folder / "deploy"
    shutil.copytree(DEPLOY, copy, ignore=shutil.ignore_patterns("users", "files", "demo", "helm"))
    assert run(["nats", "users", "--out", str(copy / "kubernetes" / "nats" / "users")]) == 0
    assert run(["keys", "generate", "--out", str(copy / "kubernetes" / "keys" / "files")]) == 0
    return copy / "kubernetes"


def overlay(kubernetes: Path, name: str, *components: str, resources: tuple[str, ...] = ("../base",)) -> Path:
    """A kustomization of one's own over the given ones, as the documentation says to write it."""
    folder = kubernetes / f"overlay-{name}"
    folder.mkdir()
    document = {"resources": list(resources), "components": [f"../{each}" for each in components]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(document))
    return folder


def by_key(objects: list[Any]) -> dict[Key, Any]:
    """
    The objects in one form, by group, kind, namespace and name.

    Without the namespace itself and Secrets, which a release does not hold; without the hash that Kustomize puts into
    names and the one that Helm puts into annotations; the texts of ConfigMaps read as YAML.
    """
    names = {each["metadata"]["name"] for each in objects if each["kind"] in ("ConfigMap", "Secret")}
    found: dict[Key, Any] = {}
    for each in objects:
        if each["kind"] in ("Namespace", "Secret"):
            continue
        one = _ordered(json.loads(_unhashed(json.dumps(each), names)))
        if one["kind"] == "ConfigMap":
            one["data"] = {key: _read(key, text) for key, text in one["data"].items()}
        template = one.get("spec", {}).get("template", {}).get("metadata", {})
        if template.get("annotations", {}).pop("checksum/config", None) and not template["annotations"]:
            del template["annotations"]
        metadata = one["metadata"]
        name = re.sub(r"^(nats-setup)-[0-9a-f]{8}$", r"\1", metadata["name"])
        metadata["name"] = name
        if one["kind"] in CLUSTER_WIDE:
            metadata.pop(
                "namespace", None
            )  # Kustomize does not know of all kinds that they have none; the API server does
        key = (one["apiVersion"], one["kind"], metadata.get("namespace", ""), name)
        assert key not in found, key
        found[key] = one
    return found


def _unhashed(text: str, names: set[str]) -> str:
    for name in names:
        text = text.replace(f'"{name}"', f'"{re.sub(r"-[2456789bcdfghkmt]{10}$", "", name)}"')
    return text


def _ordered(node: Any) -> Any:
    """Lists of named items by name: Kustomize puts those of patches first."""
    if isinstance(node, dict):
        return {key: _ordered(value) for key, value in node.items()}
    if isinstance(node, list):
        items = [_ordered(each) for each in node]
        named = all(isinstance(each, dict) and isinstance(each.get("name"), str) for each in items)
        return sorted(items, key=lambda each: each["name"]) if named else items
    return node


def _read(key: str, text: str) -> Any:
    return yaml.safe_load(text) if key.endswith(".yaml") else text.strip()
