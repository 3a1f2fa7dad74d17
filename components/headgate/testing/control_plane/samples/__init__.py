"""
The sample manifests of Kueue's documentation, and the definitions of the kinds that they are of.

Kueue's Go module has the samples up to v0.6.3 only; later ones are in its repository and on its site. So there are two
sets: that of v0.6.3, which Go fetches, and that of a folder which `HEADGATE_SAMPLES` names, with the same layout. The
definitions come from the modules that the pinned Kueue itself is built with.

Owns: where the samples and these definitions are.
Called by: tests marked `kube`.
May import: operators, cli, processes, adapters, machines, core, events.
"""

import os
from pathlib import Path
from typing import Final

from headgate.testing.control_plane.assets import NoAssetsError
from headgate.testing.control_plane.build import BuildError, downloaded, find_go, kueue_module
from headgate.testing.control_plane.operators.catalog import OPERATORS, Operator

FOLDER: Final = "HEADGATE_SAMPLES"
"""The environment variable that names a folder of samples."""

_EXAMPLES: Final = "site/static/examples"

_AUTOSCALER: Final = Operator(
    name="cluster-autoscaler", module="k8s.io/autoscaler/cluster-autoscaler/apis", crds="config/crd"
)
"""It is not run: its kind is enough."""


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
    project = next(each for each in (*OPERATORS, _AUTOSCALER) if each.name == name)
    return project.definitions(_module(project.module, None))


def _module(name: str, pins: Path | None) -> Path:
    """The folder of a module at the version of a pin: of ours in a folder, or of the pinned Kueue's."""
    go = find_go(f"the module {name} is not there, and what needs it is skipped")
    try:
        return downloaded(go, name, pins or kueue_module(go))
    except BuildError as error:
        raise NoAssetsError(f"the module {name} cannot be downloaded: {error}") from error
