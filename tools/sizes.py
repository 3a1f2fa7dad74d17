"""
Check that what is large says why. Run by `make check`; prints one line for each violation and exits with 1.

In `components/headgate` and `tools`,

- a file over `MAX_FILE_LINES` lines has `# Over 400 lines: <reason>` directly after its docstring;
- a function over `MAX_FUNCTION_LINES` lines, not counting its docstring, or with a McCabe complexity over
  `MAX_COMPLEXITY` has `# Large: <reason>` directly above its `def`, or above its decorators.

A reason may continue in the comment lines below it. One that is not needed, or stands anywhere else, is a violation
too: so reasons go away with what they were for. Complexity is measured by ruff (C901), with every `noqa` ignored.
"""

import ast
import io
import json
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "components" / "headgate", ROOT / "tools")

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 40
MAX_COMPLEXITY = 10

FILE_REASON = f"# Over {MAX_FILE_LINES} lines:"
FUNCTION_REASON = "# Large:"

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_Complexities: TypeAlias = dict[tuple[Path, int], str]
"""By file and line of the `def`: the message of ruff on each function that is too complex."""


class SizeViolation(NamedTuple):
    """A place, and what is wrong there."""

    path: Path
    line: int
    problem: str

    def __str__(self) -> str:
        """As compilers write it."""
        return f"{self.path}:{self.line}: {self.problem}"


def violations(folders: Sequence[Path]) -> Iterator[SizeViolation]:
    """All violations in the Python files below these folders."""
    complexities = _complexities(folders)
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            for line, problem in sorted(_problems(path, complexities)):
                yield SizeViolation(path, line, problem)


def _complexities(folders: Sequence[Path]) -> _Complexities:
    """The functions that ruff finds too complex. Raises CalledProcessError when ruff itself fails."""
    ruff = Path(sys.executable).with_name("ruff")
    options = (
        "--isolated",
        "--ignore-noqa",
        "--no-cache",
        "--exit-zero",
        "--output-format",
        "json",
        "--select",
        "C901",
    )
    limit = f"lint.mccabe.max-complexity={MAX_COMPLEXITY}"
    command = [str(ruff), "check", *options, "--config", limit, *map(str, folders)]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return {
        (Path(each["filename"]).resolve(), each["location"]["row"]): each["message"]
        for each in found
        if each["code"] == "C901"
    }


def _problems(path: Path, complexities: _Complexities) -> Iterator[tuple[int, str]]:
    source = path.read_text()
    tree = ast.parse(source)
    reasons = _reasons(source)
    length = len(source.splitlines())
    line = _line_after_docstring(tree, source)
    if length > MAX_FILE_LINES:
        yield from _needed(reasons, line, FILE_REASON, f"the file has {length} lines, more than {MAX_FILE_LINES}")
    for node in ast.walk(tree):
        if isinstance(node, _Function):
            sizes = list(_sizes(node, complexities.get((path.resolve(), node.lineno))))
            if sizes:
                yield from _needed(reasons, _line_above(node, source), FUNCTION_REASON, "; ".join(sizes))
    for line, (form, _) in reasons.items():
        yield line, f"no reason is needed here, remove the comment: {form} ..."


def _reasons(source: str) -> dict[int, tuple[str, str]]:
    """By line: the form and the text of each reason in a file. Those that are needed are taken out one by one."""
    reasons = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            for form in (FILE_REASON, FUNCTION_REASON):
                if token.string.startswith(form):
                    reasons[token.start[0]] = form, token.string.removeprefix(form).strip()
    return reasons


def _needed(reasons: dict[int, tuple[str, str]], line: int, form: str, problem: str) -> Iterator[tuple[int, str]]:
    """Take out the reason that has to stand in a line. Yields what is wrong when there is none."""
    found, text = reasons.get(line, ("", ""))
    if found == form:
        del reasons[line]
    if found != form or not text:
        yield line, f"{problem}: split it, or say why it is one piece with `{form} <reason>`"


def _sizes(node: _Function, complexity: str | None) -> Iterator[str]:
    """In which ways a function is too large."""
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node, clean=False) is not None:
        docstring = node.body[0]
        length -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    if length > MAX_FUNCTION_LINES:
        yield f"`{node.name}` has {length} lines, more than {MAX_FUNCTION_LINES}"
    if complexity is not None:
        yield complexity


def _line_after_docstring(tree: ast.Module, source: str) -> int:
    """The first line after a module's docstring that is not empty, or the first of all."""
    start = tree.body[0].end_lineno or 0 if tree.body and ast.get_docstring(tree) is not None else 0
    lines = source.splitlines()
    return next((number for number in range(start + 1, len(lines) + 1) if lines[number - 1].strip()), 1)


def _line_above(node: _Function, source: str) -> int:
    """
    The line of the reason in the comment directly above a function.

    Where there is none: the line of the function, or of its first decorator, where no comment of a line's own stands.
    """
    first = min(each.lineno for each in (node, *node.decorator_list))
    lines = source.splitlines()
    line = first
    while line > 1 and lines[line - 2].lstrip().startswith("#"):
        line -= 1
        if lines[line - 1].lstrip().startswith(FUNCTION_REASON):
            return line
    return first


def main() -> None:
    """Print the violations in the code; exit with 1 if there are any."""
    found = list(violations(FOLDERS))
    for violation in found:
        print(violation._replace(path=violation.path.relative_to(ROOT)))
    if found:
        sys.exit(f"{len(found)} things are large without a reason, or small with one.")


if __name__ == "__main__":
    main()
