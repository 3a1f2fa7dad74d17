"""
Kueue's own programs, built unchanged from the pinned module, beside the binaries of the control plane.

Its kubectl plugin and its controller manager, with the manifests that the manager is installed by. `make operators`
builds them: their builds share little with that of the control plane and take minutes with a cold cache, and only their
own tests need them.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from headgate.testing.control_plane.assets import NoAssetsError, cache_folder
from headgate.testing.control_plane.build import BuildError, kueue_module

PLUGIN: Final = "kubectl-kueue"
"""The name by which kubectl finds it on the PATH: `kubectl kueue`."""

MANAGER: Final = "kueue"
"""The controller manager: scheduler, controllers of all kinds of jobs, and webhooks."""

MANIFESTS: Final = "kueue-config"
"""The folder with Kueue's manifests, as kustomize reads them: `default` installs everything."""

PROGRAMS: Final = {PLUGIN: "./cmd/kueuectl", MANAGER: "./cmd/kueue"}


def find_program(name: str) -> Path:
    """The binary. Raises NoAssetsError, with one line for people, when it is not built."""
    binary = cache_folder() / name
    if not binary.exists() or (name == MANAGER and not find_manifests().exists()):
        raise NoAssetsError(f"{name} is not in {cache_folder()}: run `make operators` (needs Go)")
    return binary


def find_manifests() -> Path:
    """Where Kueue's manifests are once its manager is built."""
    return cache_folder() / MANIFESTS


def build_program(name: str) -> Path:
    """The binary, built if it is not there. Raises NoAssetsError without Go, BuildError when Go fails."""
    binary = cache_folder() / name
    if binary.exists() and (name != MANAGER or find_manifests().exists()):
        return binary
    go, nice = shutil.which("go"), shutil.which("nice")
    if go is None:
        raise NoAssetsError(f"Go is not on the PATH: {name} is not built, and its tests are skipped")
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder(), suffix=".part") as folder:
        module = kueue_module(go)
        if name == MANAGER and not find_manifests().exists():
            shutil.copytree(module / "config", Path(folder) / MANIFESTS, copy_function=shutil.copyfile)
            for each in (Path(folder) / MANIFESTS).rglob("*"):
                each.chmod(0o755 if each.is_dir() else 0o644)  # the module's are read-only, and could not be removed
            (Path(folder) / MANIFESTS).chmod(0o755)
            (Path(folder) / MANIFESTS).replace(find_manifests())
        part = Path(folder) / name
        # In the folder of the module, which is read-only: its own go.mod and go.sum decide what is built.
        env = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": ""}
        command = [go, "build", "-trimpath", "-mod=readonly", "-ldflags", "-s -w", "-o", str(part), PROGRAMS[name]]
        done = subprocess.run([nice, *command] if nice else command, cwd=module, env=env, check=False)  # noqa: S603 - the user's Go
        if done.returncode != 0:
            raise BuildError(
                f"go build {PROGRAMS[name]} of Kueue failed (exit code {done.returncode}); its words are above"
            )
        part.replace(binary)
    return binary
