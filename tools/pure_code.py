"""
Check that the pure code is pure. Run by `make check`; prints one line for each violation and exits with 1.

Pure code is `headgate.events`, `headgate.core` and `headgate.machines`. All of it gets time, randomness and identities
as data in events, so the same log gives the same state and the same decisions on every machine. So pure code

- imports nothing but the modules in `LIBRARIES` and `NAMES`, `headgate.events`, `headgate.core` and its own package;
- uses none of the built-in functions in `BUILTINS` and none of the names in `ATTRIBUTES`.

That it does not depend on the order of a set is checked by mypy with the plugin `set_order.py`, which needs types.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[1] / "components" / "headgate"
SHARED_PACKAGES = ("events", "core")
"""What all pure code may import."""

PURE_PACKAGES = (*SHARED_PACKAGES, "machines")

LIBRARIES = frozenset(
    {
        "abc",
        "array",
        "base64",
        "binascii",
        "bisect",
        "collections",
        "collections.abc",
        "contextlib",
        "copy",
        "dataclasses",
        "datetime",
        "decimal",
        "difflib",
        "enum",
        "fractions",
        "functools",
        "hashlib",
        "heapq",
        "itertools",
        "json",
        "math",
        "msgspec",
        "msgspec.structs",
        "nacl.bindings",
        "nacl.exceptions",
        "numpy",
        "numpy.typing",
        "operator",
        "re",
        "sortedcontainers",
        "string",
        "textwrap",
        "types",
        "typing",
        "typing_extensions",  # for mypy only: what a later `typing` has
        "zlib",
    }
)
"""What pure code may import from outside of the project: no clock, no randomness, no I/O, no logging."""

NAMES = frozenset({"headgate.__version__", "sys.getrefcount", "sys.intern"})
"""What pure code may import by its name from other modules."""

BUILTINS = {
    "__builtins__": "pure code uses built-in functions by their names, so that this check sees them",
    "__import__": "pure code imports by statements, so that this check sees them",
    "breakpoint": "pure code does no I/O",
    "compile": "pure code is what is written in it",
    "eval": "pure code is what is written in it",
    "exec": "pure code is what is written in it",
    "hash": "hash() of a string differs between processes; use `headgate.events.commit.digest`",
    "id": "id() differs between processes; use a key of the object",
    "input": "pure code does no I/O",
    "open": "pure code does no I/O",
    "print": "pure code does no I/O",
}

ATTRIBUTES = {
    "__hash__": "hash() of a string differs between processes; use `headgate.events.commit.digest`",
    "datetime.date.today": "pure code gets time as data in events",
    "datetime.datetime.now": "pure code gets time as data in events",
    "datetime.datetime.today": "pure code gets time as data in events",
    "datetime.datetime.utcnow": "pure code gets time as data in events",
    "numpy.fromfile": "pure code does no I/O",
    "numpy.load": "pure code does no I/O",
    "numpy.random": "pure code gets randomness as data in events",
    "nacl.bindings.randombytes": "pure code gets randomness as data in events",
}


class Impurity(NamedTuple):
    """A place in pure code, and what is wrong there."""

    path: Path
    line: int
    column: int
    problem: str

    def __str__(self) -> str:
        """As compilers write it."""
        return f"{self.path}:{self.line}:{self.column}: {self.problem}"


def pure_modules(package: Path) -> list[Path]:
    """The files of the pure code below `headgate`, sorted."""
    return sorted(path for name in PURE_PACKAGES for path in (package / name).rglob("*.py"))


def violations(package: Path) -> Iterator[Impurity]:
    """All violations in the pure code below `headgate`."""
    for path in pure_modules(package):
        for node, problem in _problems(ast.parse(path.read_text()), _own_packages(path, package)):
            yield Impurity(path, node.lineno, node.col_offset + 1, problem)


def _own_packages(path: Path, package: Path) -> tuple[str, ...]:
    """The packages of the project that a module may import."""
    shared = tuple(f"{package.name}.{name}" for name in SHARED_PACKAGES)
    where = path.relative_to(package).parts[:2]
    return shared if where[0] in SHARED_PACKAGES else (*shared, ".".join((package.name, *where)))


def _imports(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """The modules that a module imports. Of `from a import b` both `a` and `a.b`: b may be a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node
            yield node.module or "", node


# Large: one case for each kind of syntax that can break purity.
def _problems(tree: ast.Module, own: tuple[str, ...]) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    known = _bound_by_imports(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    if not _may_import(alias.name, own):
                        yield node, f"pure code may not import {alias.name}"
            case ast.ImportFrom(module=module, names=names):
                for alias in names if not _may_import(module or "", own) else ():
                    name = f"{module}.{alias.name}"
                    if name not in NAMES and not _may_import(name, own):
                        yield node, f"pure code may not import {name}"
                for alias in names:
                    if (problem := ATTRIBUTES.get(f"{module}.{alias.name}")) is not None:
                        yield node, f"{module}.{alias.name} is refused: {problem}"
            case ast.Name(id=name, ctx=ast.Load()) if name in BUILTINS:
                yield node, f"{name} is refused: {BUILTINS[name]}"
            case ast.Attribute(attr="__hash__"):
                yield node, f"__hash__ is refused: {ATTRIBUTES['__hash__']}"
            case ast.Attribute():
                name = _resolved(node, known)
                if name in ATTRIBUTES:
                    yield node, f"{name} is refused: {ATTRIBUTES[name]}"
            case _:
                pass


def _may_import(module: str, own: tuple[str, ...]) -> bool:
    return module in LIBRARIES or any(module == name or module.startswith(f"{name}.") for name in own)


def _bound_by_imports(tree: ast.Module) -> dict[str, str]:
    """What the names that imports bind refer to."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                known[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom):
            known.update((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
    return known


def _resolved(node: ast.expr, known: dict[str, str]) -> str:
    """The dotted name of an expression with its first part resolved; "" when it is none."""
    if isinstance(node, ast.Name):
        return known.get(node.id, "")
    if isinstance(node, ast.Attribute):
        before = _resolved(node.value, known)
        return f"{before}.{node.attr}" if before else ""
    return ""


def main() -> int:
    """The command."""
    found = list(violations(PACKAGE))
    for each in found:
        print(each._replace(path=each.path.relative_to(PACKAGE.parents[1])))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
