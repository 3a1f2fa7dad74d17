"""
A real Kubernetes control plane for tests: built from pinned Go modules (`make kube`), up in seconds, gone at the end.

    async with control_plane(find_assets(), folder) as plane: ...

By hand: `python -m headgate.testing.control_plane build|run|demo`.

Owns: the programs of a control plane, their start, certificates and faults.
Called by: tests marked `kube`, `make kube`, `make demo-kube`.
May import: cli, processes, adapters, machines, core, events.
"""

from headgate.testing.control_plane.assets import (
    API_SERVER,
    CONTROLLERS,
    ETCD,
    KUBERNETES_VERSION,
    KWOK,
    Assets,
    NoAssetsError,
    find_assets,
)
from headgate.testing.control_plane.audit import AuditLine
from headgate.testing.control_plane.component import StartError
from headgate.testing.control_plane.flags import Options
from headgate.testing.control_plane.plane import ControlPlane, ControlPlaneError, control_plane
from headgate.testing.control_plane.stages import READY_ANNOTATION

__all__ = [
    "API_SERVER",
    "CONTROLLERS",
    "ETCD",
    "KUBERNETES_VERSION",
    "KWOK",
    "READY_ANNOTATION",
    "Assets",
    "AuditLine",
    "ControlPlane",
    "ControlPlaneError",
    "NoAssetsError",
    "Options",
    "StartError",
    "control_plane",
    "find_assets",
]
