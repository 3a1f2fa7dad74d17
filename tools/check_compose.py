"""
Checks docker-compose.yml without Docker: its structure, and that every command in it is one that exists.

Run by `make check`. Where the compose plug-in is installed, `docker compose config` has the last word.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from headgate.events.base import Producer

ROOT = Path(__file__).parents[1]
TOP_LEVEL = {"name", "services", "volumes", "networks", "configs", "secrets"}
SERVICE_KEYS = {
    "build", "cap_drop", "command", "depends_on", "environment", "healthcheck", "image", "init", "networks", "ports",
    "read_only", "restart", "security_opt", "tmpfs", "user", "volumes",
}  # fmt: skip


def problems(document: Any) -> list[str]:
    """What is wrong with a compose file, one line each."""
    if not isinstance(document, dict):
        return ["the file is no mapping"]
    found = [f"unknown top-level key {key}" for key in document if key not in TOP_LEVEL and not key.startswith("x-")]
    services = document.get("services") or {}
    for name, service in services.items():
        found += [f"services.{name}: unknown key {key}" for key in service if key not in SERVICE_KEYS]
        if "image" not in service and "build" not in service:
            found.append(f"services.{name}: has neither image nor build")
        found += [
            f"services.{name}: depends on {other}, which is no service"
            for other in service.get("depends_on", {})
            if other not in services
        ]
        found += _volume_problems(name, service, document.get("volumes") or {})
        dockerfile = (service.get("build") or {}).get("dockerfile")
        if dockerfile and not (ROOT / dockerfile).is_file():
            found.append(f"services.{name}: {dockerfile} does not exist")
    return found + _process_problems(services)


def _volume_problems(name: str, service: dict[str, Any], volumes: dict[str, Any]) -> list[str]:
    sources = [volume.split(":")[0] for volume in service.get("volumes", [])]
    files = [source for source in sources if source.startswith("./")]
    missing = [f"services.{name}: {source} does not exist" for source in files if not (ROOT / source).exists()]
    named = (source for source in sources if source not in files)
    return missing + [f"services.{name}: volume {source} is not declared" for source in named if source not in volumes]


def _process_problems(services: dict[str, Any]) -> list[str]:
    """Each of the six processes has a service of its name that runs it."""
    return [
        f"services.{producer.value}: expected a service that runs `headgate run {producer.value}`"
        for producer in Producer
        if services.get(producer.value, {}).get("command") != ["run", producer.value]
    ]


def main() -> int:
    """0 when the file is right."""
    path = ROOT / "docker-compose.yml"
    try:
        document = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        print(f"{path.name}: {error}", file=sys.stderr)
        return 1
    found = problems(document)
    for line in found:
        print(f"{path.name}: {line}", file=sys.stderr)
    if not found and shutil.which("docker"):
        probe = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
        if probe.returncode == 0:
            return subprocess.run(["docker", "compose", "-f", str(path), "config", "-q"], check=False).returncode
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
