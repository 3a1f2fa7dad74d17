"""
Kueue itself in the harness of the benchmarks: its scheduler and core controllers, as its performance suite runs them.

`build` makes `minimalkueue` of the pinned Kueue module, with one change: the limits of its client (50 requests a
second) are lifted, so that the comparison is one of schedulers. The binary stays in the cache folder of the control
plane.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Final

import anyio

from headgate.testing.control_plane.assets import NoAssetsError, cache_folder
from headgate.testing.control_plane.build import build_package, find_go, kueue_module
from headgate.testing.control_plane.component import Component

KUEUE: Final = "kueue"
_PACKAGE: Final = "test/performance/scheduler/minimalkueue"
_LIMITS: Final = {"kubeConfig.QPS = 50": "kubeConfig.QPS = 5000", "kubeConfig.Burst = 100": "kubeConfig.Burst = 10000"}


def build() -> Path:
    """The binary, built if it is not there. Raises NoAssetsError without Go, BuildError when Go fails."""
    binary = cache_folder() / "minimalkueue"
    if binary.exists():
        return binary
    go = find_go("Kueue cannot be built to compare with")
    with tempfile.TemporaryDirectory(prefix="headgate-kueue-") as directory:
        source = Path(directory) / "kueue"
        shutil.copytree(kueue_module(go), source)
        main = source / _PACKAGE / "main.go"
        for path in (source / _PACKAGE, main):
            path.chmod(0o755)
        text = main.read_text()
        for before, after in _LIMITS.items():
            if before not in text:
                raise NoAssetsError(f"{main.name} of the pinned Kueue has no line {before!r}: adapt {__name__}")
            text = text.replace(before, after)
        main.write_text(text)
        build_package(go, f"./{_PACKAGE}", source, binary)
        for path in source.rglob("*"):
            if path.is_dir():
                path.chmod(0o755)
    return binary


def component(binary: Path, kubeconfig: Path, log_file: Path, *, topologies: bool) -> Component:
    """Kueue as a child process on a control plane; `topologies` starts its topology controllers."""

    async def ready() -> bool:
        return "Starting workers" in await anyio.Path(log_file).read_text(errors="replace")

    args = [str(binary), f"--kubeconfig={kubeconfig}", "--zap-log-level=info"]
    return Component(KUEUE, [*args, *(["--enableTAS"] if topologies else [])], log_file, ready)
