"""
The kube-scheduler itself on a control plane, to compare with: built unchanged from the pins of the API server.

`make operators` builds it beside the binaries of the control plane. Only comparisons need it, as Headgate places the
pods of all other tests.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from headgate.testing.control_plane.assets import KUBERNETES_VERSION_FLAGS, MODULES, NoAssetsError, cache_folder
from headgate.testing.control_plane.build import build_package, find_go, locked, say, step
from headgate.testing.control_plane.component import Component
from headgate.testing.control_plane.plane import ControlPlane

KUBE_SCHEDULER: Final = "kube-scheduler"

_PACKAGE: Final = f"k8s.io/kubernetes/cmd/{KUBE_SCHEDULER}"
_STARTED: Final = "Starting Kubernetes Scheduler"
"""What it logs once its configuration is read and its profiles are built."""


def find_kube_scheduler() -> Path:
    """The binary. Raises NoAssetsError, with one line for people, when it is not built."""
    binary = cache_folder() / KUBE_SCHEDULER
    if not binary.exists():
        raise NoAssetsError(f"{KUBE_SCHEDULER} is not in {cache_folder()}: run `make operators` (needs Go)")
    return binary


def build_kube_scheduler() -> Path:
    """The binary, built if it is not there. Raises NoAssetsError without Go, BuildError when Go fails."""
    binary = cache_folder() / KUBE_SCHEDULER
    if not binary.exists():
        go = find_go(f"{KUBE_SCHEDULER} is not built, and comparisons with it are skipped")
        with locked(cache_folder()), step(f"{KUBE_SCHEDULER} into {cache_folder()}"):
            build_package(go, _PACKAGE, MODULES / "kubernetes", binary, f"-s -w {KUBERNETES_VERSION_FLAGS}")
    say(f"{KUBE_SCHEDULER} is {binary}")
    return binary


async def kube_scheduler(
    plane: ControlPlane, folder: Path, configuration: Mapping[str, Any], *, flags: Sequence[str] = ()
) -> Component:
    """
    A kube-scheduler for a control plane, with a KubeSchedulerConfiguration and further flags; it is not started yet.

    It serves nothing, elects no leader, and its client has no limits. Raises NoAssetsError when it is not built.
    """
    binary = find_kube_scheduler()
    await anyio.Path(folder).mkdir(parents=True, exist_ok=True)
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        **configuration,
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(plane.kubeconfig), "qps": 5000, "burst": 10000},
    }
    file = folder / "configuration.json"
    await anyio.Path(file).write_bytes(msgspec.json.encode(document))
    log_file = folder / f"{KUBE_SCHEDULER}.log"

    async def ready() -> bool:
        return _STARTED in await anyio.Path(log_file).read_text(errors="replace")

    args = [str(binary), f"--config={file}", "--secure-port=0", *flags]
    return Component(KUBE_SCHEDULER, args, log_file, ready)
