"""
The operators that are run in tests: the Go module of each, and which of its manifests it needs.

The binaries and manifests are in the user's cache folder, one folder for each operator, under a key made of all that
decides what is built. `make operators` fills it; a test asks `find_operator`, and is skipped where there is none.
The definitions alone are fetched for the tests that need no more (`build.fetch_definitions`).
"""

import os
from pathlib import Path
from typing import Final

import msgspec

from headgate.testing.control_plane.assets import NoAssetsError, folder_of

MODULES: Final = Path(__file__).parent / "modules"
"""A Go module for each operator, with its go.mod and go.sum: their dependencies differ."""

CRDS: Final = "crds"
WEBHOOKS: Final = "webhooks.yaml"
COMPLETE: Final = "complete"


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """
    An operator: its Go module and main package, and the folders and files of the module that are its manifests.

    `name` is that of the folder below `MODULES`, of the binary, and of its process; `omitted` are names of files in the
    folder of definitions that are another operator's. Of one without a `package` only the definitions are built.
    """

    name: str
    module: str
    package: str = ""
    crds: str
    omitted: tuple[str, ...] = ()
    webhooks: str | None = None

    @property
    def folder(self) -> Path:
        """Where its binary and manifests are, or will be."""
        return folder_of("operators", self.name, self, MODULES / self.name)

    @property
    def binary(self) -> Path:
        """The program."""
        return self.folder / self.name

    @property
    def is_built(self) -> bool:
        """Whether it can be run; of one without a program, whether all of its definitions are there."""
        return self.has_definitions and (not self.package or os.access(self.binary, os.X_OK))

    @property
    def has_definitions(self) -> bool:
        """Whether its manifests are there, all of them."""
        return (self.folder / COMPLETE).exists()

    def definitions(self, source: Path) -> list[Path]:
        """The files of its definitions in its module's folder."""
        files = [each for each in sorted((source / self.crds).glob("*.yaml")) if each.name not in self.omitted]
        return [each for each in files if "kind: CustomResourceDefinition" in each.read_text()]


OPERATORS: Final = (
    Operator(
        name="jobset",
        module="sigs.k8s.io/jobset",
        package="sigs.k8s.io/jobset",
        crds="config/components/crd/bases",
        webhooks="config/components/webhook/manifests.yaml",
    ),
    Operator(
        name="lws",
        module="sigs.k8s.io/lws",
        package="sigs.k8s.io/lws/cmd",
        crds="config/crd/bases",
        webhooks="config/webhook/manifests.yaml",
    ),
    Operator(
        name="mpi-operator",
        module="github.com/kubeflow/mpi-operator",
        package="github.com/kubeflow/mpi-operator/cmd/mpi-operator",
        crds="manifests/base",
    ),
    Operator(
        name="training-operator",
        module="github.com/kubeflow/training-operator",
        package="github.com/kubeflow/training-operator/cmd/training-operator.v1",
        crds="manifests/base/crds",
        omitted=("kubeflow.org_mpijobs.yaml",),
    ),
    Operator(
        name="kuberay",
        module="github.com/ray-project/kuberay/ray-operator",
        package="github.com/ray-project/kuberay/ray-operator",
        crds="config/crd/bases",
    ),
    Operator(name="trainer", module="github.com/kubeflow/trainer/v2", crds="manifests/base/crds"),
    Operator(name="spark-operator", module="github.com/kubeflow/spark-operator/v2", crds="config/crd/bases"),
    Operator(name="appwrapper", module="github.com/project-codeflare/appwrapper", crds="config/crd/bases"),
)


def find_operator(name: str) -> Operator:
    """
    An operator that is built.

    Raises NoAssetsError, with one line for people, when it is not.
    """
    found = next(each for each in OPERATORS if each.name == name)
    if not found.is_built:
        raise NoAssetsError(f"the operator {name} is not built: run `make operators` (needs Go)")
    return found
