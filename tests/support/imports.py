"""
The import graph of the package, read from the source of its modules.

Every import counts, wherever it stands: at the top of a module, in a function, or under `TYPE_CHECKING`. Used by the
tests of the layout.
"""

import ast
from collections.abc import Container, Iterator, Mapping
from pathlib import Path

Graph = Mapping[str, frozenset[str]]
"""The modules that each module imports, by their dotted names."""


def modules(*folders: Path) -> dict[str, Path]:
    """The modules of top-level packages, by dotted name; a package is the module of its `__init__.py`."""
    found = {}
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def import_graph(*folders: Path) -> Graph:
    """Which modules of top-level packages import which others of them."""
    known = modules(*folders)
    return {name: frozenset(_imported(path, known)) - {name} for name, path in known.items()}


def _imported(path: Path, known: Container[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names if each.name in known)
            case ast.ImportFrom(module=str(module), level=0, names=names):
                for each in names:
                    name = f"{module}.{each.name}"
                    if name in known:
                        yield name
                    elif module in known:
                        yield module
            case ast.ImportFrom():
                raise AssertionError(f"{path}:{node.lineno}: relative import; write the full name")


def cycles(graph: Graph) -> list[list[str]]:
    """The sets of modules that import each other in a circle, each sorted: Tarjan's strongly connected components."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            start = stack.index(name)
            component = sorted(stack[start:])
            del stack[start:]
            if len(component) > 1:
                found.append(component)

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found
