"""
Writes the list of cases into README.md: `python -m tests.contract`.

The list is read from the sources, so that nothing has to be imported or run for it; `test_readme` compares.
"""

import ast
from pathlib import Path

HERE = Path(__file__).parent
README = HERE / "README.md"
INTRODUCTION = HERE / "introduction.md"


def cases() -> str:
    """The cases of every file, with their docstrings."""
    return "\n\n".join(_section(path) for path in sorted(HERE.glob("test_*.py")) if path.name != "test_readme.py")


def _section(path: Path) -> str:
    module = ast.parse(path.read_text())
    lines = [f"## {path.name}", "", ast.get_docstring(module) or "", ""]
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            said = " ".join((ast.get_docstring(node) or "").split())
            lines.append(f"- **{node.name.removeprefix('test_').replace('_', ' ')}** — {said}")
    return "\n".join(lines)


def text() -> str:
    """The whole README."""
    return f"{INTRODUCTION.read_text().rstrip()}\n\n{cases()}\n"


if __name__ == "__main__":
    README.write_text(text())
