"""
The layout of the package: what each package is for, imports without cycles, and names of classes that mean one thing.

The docstring of a package ends with three lines, which may be continued with an indentation:

    Owns: what it is responsible for.
    Called by: its callers.
    May import: packages, separated by commas, or `nothing`. A remark may follow.

A package is named from its own parent (`state` in `headgate.core.fold`) or from `headgate` (`core.state`). Beside what
it names a package may import itself, what it contains, and modules directly in the packages that contain it.
"""

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.imports import cycles, import_graph, modules

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "components" / "headgate", ROOT / "tools")
MODULES = modules(*FOLDERS)
PACKAGES = sorted(name for name, path in MODULES.items() if path.name == "__init__.py")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS: list[dict[str, Any]] = PYPROJECT["tool"]["importlinter"]["contracts"]
LABELS = ("Owns", "Called by", "May import")

CYCLES = {
    "at the top of a module": "import pack.two",
    "by name": "from pack import two",
    "of a name in it": "from pack.two import name",
    "in a function": "def function():\n    from pack.two import name",
    "for types only": "if TYPE_CHECKING:\n    from pack.two import Name",
}


def fields(package: str) -> dict[str, str]:
    """The three lines of a package's docstring, by label."""
    doc = ast.get_docstring(ast.parse(MODULES[package].read_text())) or ""
    found = re.findall(r"^(Owns|Called by|May import): (.+(?:\n    .+)*)$", doc, re.MULTILINE)
    assert tuple(label for label, _ in found) == LABELS, f"{MODULES[package]} must end with lines for {LABELS}"
    return {label: " ".join(text.split()) for label, text in found}


def may_import(package: str) -> list[str]:
    """The full names of what a package may import, from its docstring."""
    names = fields(package)["May import"].split(". ")[0].rstrip(".")
    return [] if names == "nothing" else [resolved(package, name) for name in names.split(", ")]


def resolved(package: str, name: str) -> str:
    """The package that a name in the docstring of another means."""
    for full in (f"{package.rpartition('.')[0]}.{name}", f"headgate.{name}", name):
        if full in PACKAGES:
            return full
    raise AssertionError(f"{MODULES[package]}: May import: there is no package {name!r}")


def is_within(module: str, package: str) -> bool:
    """Whether a module is a package or below it."""
    return module == package or module.startswith(f"{package}.")


def child(container: str, module: str) -> str | None:
    """The part of a container that a module is or is in; None outside."""
    return module[len(container) + 1 :].split(".")[0] if module.startswith(f"{container}.") else None


def refusals(package: str, named: str) -> Iterator[str]:
    """The import contracts by which a package may not import another."""
    for contract in CONTRACTS:
        match contract["type"]:
            case "layers":
                level = {part: i for i, layer in enumerate(contract["layers"]) for part in layer.split(" | ")}
                for container in contract["containers"]:
                    ours, theirs = child(container, package), child(container, named)
                    if ours is not None and theirs is not None and ours != theirs and level[theirs] <= level[ours]:
                        yield contract["name"]
            case "independence":
                for container in (pattern.removesuffix(".*") for pattern in contract["modules"]):
                    ours, theirs = child(container, package), child(container, named)
                    if ours is not None and theirs is not None and ours != theirs:
                        yield contract["name"]
            case "forbidden":
                if any(is_within(package, each) for each in contract["source_modules"]) and any(
                    is_within(named, each) for each in contract["forbidden_modules"]
                ):
                    yield contract["name"]
            case unknown:
                raise AssertionError(f"a contract of type {unknown!r} is not known here")


@pytest.mark.parametrize("package", PACKAGES)
def test_what_a_package_says_it_may_import_is_allowed_by_the_contracts(package: str) -> None:
    """The docstring has the three lines, and names no package that import-linter refuses or that contains it."""
    for named in may_import(package):
        assert not is_within(package, named), f"{package} names {named}, which contains it; name the parts of it"
        refused = list(refusals(package, named))
        assert not refused, f"{package} may not import {named}: {refused}"


def test_a_package_imports_only_what_it_says() -> None:
    """All imports of a package, and of what it contains, are of packages that its docstring names."""
    graph = import_graph(*FOLDERS)
    surplus = []
    for package in PACKAGES:
        named = [package, *may_import(package)]
        around = {".".join(package.split(".")[:count]) for count in range(1, package.count(".") + 1)}
        for module in (each for each in graph if is_within(each, package)):
            for other in sorted(graph[module]):
                home = other if MODULES[other].name == "__init__.py" else other.rpartition(".")[0]
                if home not in around and not any(is_within(other, each) for each in named):
                    surplus.append(f"{package}: {module} imports {other}")
    assert not surplus, "not named in the line May import of the package:\n" + "\n".join(surplus)


@pytest.mark.parametrize(
    ("package", "named", "is_refused"),
    [
        ("headgate.core.state", "headgate.core.fold", True),
        ("headgate.core.fold", "headgate.core.state", False),
        ("headgate.core.fold", "headgate.core.status", True),
        ("headgate.core.machine", "headgate.core.placement", True),
        ("headgate.events", "headgate.core", True),
        ("headgate.cli", "headgate.web", True),
        ("headgate.machines.binder", "headgate.machines.ungater", True),
        ("headgate.processes.binder", "headgate.machines.binder", False),
        ("headgate.processes.runtime", "headgate.processes.recovery", True),
    ],
)
def test_each_contract_refuses(package: str, named: str, is_refused: bool) -> None:
    """Layers, layers that are independent of each other, independence and forbidden imports are all read."""
    assert bool(list(refusals(package, named))) == is_refused


def test_no_modules_import_each_other() -> None:
    """The import graph has no cycle, with the imports in functions and under TYPE_CHECKING."""
    graph = import_graph(*FOLDERS)
    assert sum(map(len, graph.values())) > len(graph) > 1
    found = [" <-> ".join(each) for each in cycles(graph)]
    assert not found, "modules import each other; move what they share to a module of its own:\n" + "\n".join(found)


@pytest.mark.parametrize("planted", CYCLES.values(), ids=CYCLES)
def test_each_way_to_import_is_seen(planted: str, tmp_path: Path) -> None:
    """A cycle over three modules is found and named, however one of its imports is written."""
    pack = tmp_path / "pack"
    pack.mkdir()
    (pack / "__init__.py").write_text("")
    (pack / "one.py").write_text(planted)
    (pack / "two.py").write_text("from pack import three")
    (pack / "three.py").write_text("from pack.one import name\nimport json")
    (pack / "four.py").write_text("import pack.one")
    assert cycles(import_graph(pack)) == [["pack.one", "pack.three", "pack.two"]]


def repeated(files: Mapping[str, Path]) -> list[str]:
    """The public classes that several of the modules define, each with the modules."""
    homes: dict[str, list[str]] = {}
    for module, path in files.items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module)
    return [f"{name}: {', '.join(sorted(found))}" for name, found in sorted(homes.items()) if len(found) > 1]


def test_no_two_public_classes_share_a_name() -> None:
    """A name stands for one thing in the whole project, so it can be searched for and talked about without a module."""
    found = repeated(MODULES)
    assert not found, "classes of the same name; say in the name what each is, or make them one:\n" + "\n".join(found)


def test_a_shared_name_is_found(tmp_path: Path) -> None:
    """Two modules with a class `Node` are named; private classes and functions may repeat."""
    files = {name: tmp_path / f"{name}.py" for name in ("one", "two")}
    for path in files.values():
        path.write_text("class Node: ...\nclass _Part: ...\ndef decide(): ...\n")
    assert repeated(files) == ["Node: one, two"]
