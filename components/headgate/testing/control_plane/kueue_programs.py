"""
Kueue's own programs, built unchanged from the pinned module, beside the binaries of the control plane.

Its kubectl plugin and its controller manager, with the manifests that the manager is installed by. `make operators`
builds them: their builds share little with that of the control plane and take minutes with a cold cache, and only their
own tests need them.
"""

import shutil
from pathlib import Path
from typing import Final

from headgate.testing.control_plane.assets import NoAssetsError, cache_folder
from headgate.testing.control_plane.build import build_package, find_go, kueue_module, locked, say, step

PLUGIN: Final = "kubectl-kueue"
"""The name by which kubectl finds it on the PATH: `kubectl kueue`."""

MANAGER: Final = "kueue"
"""The controller manager: scheduler, controllers of all kinds of jobs, and webhooks."""

MANIFESTS: Final = "kueue-config"
"""The folder with Kueue's manifests, as kustomize reads them: `default` installs everything."""

PROGRAMS: Final = {PLUGIN: "./cmd/kueuectl", MANAGER: "./cmd/kueue"}


def find_program(name: str) -> Path:
    """The binary. Raises NoAssetsError, with one line for people, when it is not built."""
    if not _is_built(name):
        raise NoAssetsError(f"{name} is not in {cache_folder()}: run `make operators` (needs Go)")
    return cache_folder() / name


def find_manifests() -> Path:
    """Where Kueue's manifests are once its manager is built."""
    return cache_folder() / MANIFESTS


def build_programs() -> None:
    """Build what is missing, with a line for each. Raises NoAssetsError without Go, BuildError when Go fails."""
    for name, package in PROGRAMS.items():
        binary = cache_folder() / name
        if not _is_built(name):
            go = find_go(f"{name} is not built, and its tests are skipped")
            with locked(cache_folder()), step(f"{name} into {cache_folder()}"):
                module = kueue_module(go)
                if name == MANAGER:
                    _copy_manifests(module)
                # In the folder of the module, which is read-only: its own go.mod and go.sum decide what is built.
                build_package(go, package, module, binary)
        say(f"{name} is {binary}")


def _is_built(name: str) -> bool:
    return (cache_folder() / name).exists() and (name != MANAGER or find_manifests().exists())


def _copy_manifests(module: Path) -> None:
    if find_manifests().exists():
        return
    part = find_manifests().with_name(f"{MANIFESTS}.part")
    shutil.copytree(module / "config", part, copy_function=shutil.copyfile)
    for each in (part, *part.rglob("*")):
        each.chmod(0o755 if each.is_dir() else 0o644)  # the module's are read-only, and could not be removed
    part.replace(find_manifests())
