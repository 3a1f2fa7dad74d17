"""
Building the operators: `make operators`.

As the control plane is built (`headgate.testing.control_plane.build`): Go fetches the pinned modules and builds each
binary into the user's cache folder, beside the CustomResourceDefinitions and webhooks from its module.
"""

import shutil
import sys
import time

from headgate.testing.control_plane.assets import NoAssetsError
from headgate.testing.control_plane.build import build_package, downloaded, locked
from headgate.testing.control_plane.operators.catalog import COMPLETE, CRDS, MODULES, OPERATORS, WEBHOOKS, Operator


def build_operators() -> None:
    """
    Build what is missing, with a line for each on standard output.

    Raises NoAssetsError without Go, BuildError when Go fails.
    """
    go = shutil.which("go")
    for each in OPERATORS:
        if each.is_built:
            _say(f"{each.name} is in {each.folder}\n")
        elif go is None:
            raise NoAssetsError("Go is not on the PATH: the operators are not built, and their tests are skipped")
        else:
            _build(go, each)


def _build(go: str, operator: Operator) -> None:
    operator.folder.mkdir(parents=True, exist_ok=True)
    with locked(operator.folder):
        if operator.is_built:
            return
        _say(f"{operator.name} into {operator.folder} ...")
        begun = time.monotonic()
        source = downloaded(go, operator.module, MODULES / operator.name)
        crds = operator.folder / CRDS
        crds.mkdir(exist_ok=True)
        for path in sorted((source / operator.crds).glob("*.yaml")):
            text = path.read_text()
            if "kind: CustomResourceDefinition" in text and path.name not in operator.omitted:
                (crds / path.name).write_text(text)
        if operator.webhooks is not None:
            (operator.folder / WEBHOOKS).write_text((source / operator.webhooks).read_text())
        if operator.package:
            build_package(go, operator.package, MODULES / operator.name, operator.binary)
        else:
            (operator.folder / COMPLETE).touch()
        _say(f" {time.monotonic() - begun:.0f} s\n")


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
