"""
Kueue's kubectl plugin, built unchanged from the pinned module, beside the binaries of the control plane.

`make operators` builds it: its build shares next to nothing with that of kubectl and takes minutes with a cold cache,
and only its own test needs it.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from headgate.testing.control_plane.assets import NoAssetsError, cache_folder
from headgate.testing.control_plane.build import BuildError, kueue_module

NAME: Final = "kubectl-kueue"
"""The name by which kubectl finds it on the PATH: `kubectl kueue`."""

_PACKAGE: Final = "./cmd/kueuectl"


def find_plugin() -> Path:
    """The binary. Raises NoAssetsError, with one line for people, when it is not built."""
    binary = cache_folder() / NAME
    if not binary.exists():
        raise NoAssetsError(f"{NAME} is not in {cache_folder()}: run `make operators` (needs Go)")
    return binary


def build_plugin() -> Path:
    """The binary, built if it is not there. Raises NoAssetsError without Go, BuildError when Go fails."""
    binary = cache_folder() / NAME
    if binary.exists():
        return binary
    go, nice = shutil.which("go"), shutil.which("nice")
    if go is None:
        raise NoAssetsError(f"Go is not on the PATH: {NAME} is not built, and its test is skipped")
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder(), suffix=".part") as folder:
        part = Path(folder) / NAME
        # In the folder of the module, which is read-only: its own go.mod and go.sum decide what is built.
        env = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": ""}
        command = [go, "build", "-trimpath", "-mod=readonly", "-ldflags", "-s -w", "-o", str(part), _PACKAGE]
        done = subprocess.run([nice, *command] if nice else command, cwd=kueue_module(go), env=env, check=False)  # noqa: S603 - the user's Go
        if done.returncode != 0:
            raise BuildError(f"go build {_PACKAGE} of Kueue failed (exit code {done.returncode}); its words are above")
        part.replace(binary)
    return binary
