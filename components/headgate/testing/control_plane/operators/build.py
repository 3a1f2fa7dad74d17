"""
Building the operators: `make operators`.

As the control plane is built (`headgate.testing.control_plane.build`): Go fetches the pinned modules and builds each
binary into the user's cache folder, beside the CustomResourceDefinitions and webhooks from its module.
"""

from pathlib import Path

from headgate.testing.control_plane.assets import NoAssetsError
from headgate.testing.control_plane.build import BuildError, build_package, downloaded, find_go, locked, say, step
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


def fetch_definitions(name: str) -> Path:
    """
    The folder of the CustomResourceDefinitions of an operator, fetched if they are not there; it need not be built.

    Raises NoAssetsError, with one line for people, without Go or its proxy.
    """
    operator = next(each for each in OPERATORS if each.name == name)
    if not operator.has_definitions:
        go = find_go(f"the definitions of {name} are not there, and their tests are skipped")
        with locked(operator.folder):
            try:
                _write_definitions(go, operator)
            except BuildError as error:
                raise NoAssetsError(f"the definitions of {name} cannot be downloaded: {error}") from error
    return operator.folder / CRDS


def _build(go: str, operator: Operator) -> None:
    with step(f"{operator.name} into {operator.folder}"):
        _write_definitions(go, operator)
        if operator.package:
            build_package(go, operator.package, MODULES / operator.name, operator.binary)


def _write_definitions(go: str, operator: Operator) -> None:
    """Copy the manifests from the operator's module. Raises BuildError when Go fails."""
    if operator.has_definitions:
        return
    source = downloaded(go, operator.module, MODULES / operator.name)
    crds = operator.folder / CRDS
    crds.mkdir(exist_ok=True)
    for path in operator.definitions(source):
        (crds / path.name).write_text(path.read_text())
    if operator.webhooks is not None:
        (operator.folder / WEBHOOKS).write_text((source / operator.webhooks).read_text())
    (operator.folder / COMPLETE).touch()
