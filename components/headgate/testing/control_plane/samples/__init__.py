"""
The sample manifests of Kueue's documentation, and the definitions of the kinds that they are of.

Kueue's Go module has the samples up to v0.6.3 only; later ones are in its repository and on its site. So there are two
sets: that of v0.6.3, which Go fetches, and that of a folder which `HEADGATE_SAMPLES` names, with the same layout. The
definitions come from the modules that the pinned Kueue itself is built with.

Owns: where the samples and these definitions are.
Called by: tests marked `kube`.
May import: cli, processes, adapters, machines, core, events.
"""

import os
import shutil
from pathlib import Path
from typing import Final

from headgate.testing.control_plane.assets import NoAssetsError
from headgate.testing.control_plane.build import BuildError, downloaded, kueue_module

FOLDER: Final = "HEADGATE_SAMPLES"
"""The environment variable that names a folder of samples."""

_EXAMPLES: Final = "site/static/examples"

_DEFINITIONS: Final = {
    "jobset": ("sigs.k8s.io/jobset", "config/components/crd/bases"),
    "leaderworkerset": ("sigs.k8s.io/lws", "config/crd/bases"),
    "training-operator": ("github.com/kubeflow/training-operator", "manifests/base/crds"),
    "mpi-operator": ("github.com/kubeflow/mpi-operator", "manifests/base"),
    "kuberay": ("github.com/ray-project/kuberay/ray-operator", "config/crd/bases"),
    "appwrapper": ("github.com/project-codeflare/appwrapper", "config/crd/bases"),
    "spark-operator": ("github.com/kubeflow/spark-operator/v2", "config/crd/bases"),
    "cluster-autoscaler": ("k8s.io/autoscaler/cluster-autoscaler/apis", "config/crd"),
}
_OTHERS: Final = ("kubeflow.org_mpijobs.yaml",)
"""Definitions of one module that another has in a newer form."""


def released_samples() -> Path:
    """
    The folder of the samples of Kueue v0.6.3, read-only.

    Raises NoAssetsError, with one line for people, without Go or its proxy.
    """
    return _module("sigs.k8s.io/kueue", Path(__file__).parent) / _EXAMPLES


def named_samples() -> Path | None:
    """The folder that `HEADGATE_SAMPLES` names; None where it names none. Raises NoAssetsError if it is not there."""
    named = os.environ.get(FOLDER)
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise NoAssetsError(f"{FOLDER} names {named}, which is not a folder")
    return folder


def definitions(name: str) -> list[Path]:
    """
    The files of the CustomResourceDefinitions of a project, as the pinned Kueue knows it.

    Raises NoAssetsError, with one line for people, without Go or its proxy.
    """
    module, folder = _DEFINITIONS[name]
    files = sorted((_module(module, None) / folder).glob("*.yaml"))
    others = () if name == "mpi-operator" else _OTHERS
    return [each for each in files if each.name not in others and "kind: CustomResourceDefinition" in each.read_text()]


def _module(name: str, pins: Path | None) -> Path:
    """The folder of a module at the version of a pin: of ours in a folder, or of the pinned Kueue's."""
    go = shutil.which("go")
    if go is None:
        raise NoAssetsError(f"Go is not on the PATH: the module {name} is not there, and what needs it is skipped")
    try:
        return downloaded(go, name, pins or kueue_module(go))
    except BuildError as error:
        raise NoAssetsError(f"the module {name} cannot be downloaded: {error}") from error
