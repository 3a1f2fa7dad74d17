"""
Building the operators: `make operators`.

As the control plane is built (`headgate.testing.control_plane.build`): Go fetches the pinned modules and builds each
binary into the user's cache folder, beside the CustomResourceDefinitions and webhooks from its module.
"""

from headgate.testing.control_plane.build import build_package, downloaded, find_go, locked, say, step
from headgate.testing.control_plane.operators.catalog import COMPLETE, CRDS, MODULES, OPERATORS, WEBHOOKS, Operator


def build_operators() -> None:
    """
    Build what is missing, with a line for each on standard output.

    Raises NoAssetsError without Go, BuildError when Go fails.
    """
    for each in OPERATORS:
        if each.is_built:
            say(f"{each.name} is in {each.folder}")
            continue
        go = find_go("the operators are not built, and their tests are skipped")
        with locked(each.folder):
            if not each.is_built:
                _build(go, each)


def _build(go: str, operator: Operator) -> None:
    with step(f"{operator.name} into {operator.folder}"):
        source = downloaded(go, operator.module, MODULES / operator.name)
        crds = operator.folder / CRDS
        crds.mkdir(exist_ok=True)
        for path in operator.definitions(source):
            (crds / path.name).write_text(path.read_text())
        if operator.webhooks is not None:
            (operator.folder / WEBHOOKS).write_text((source / operator.webhooks).read_text())
        if operator.package:
            build_package(go, operator.package, MODULES / operator.name, operator.binary)
        else:
            (operator.folder / COMPLETE).touch()
