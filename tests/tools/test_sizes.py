"""`tools/sizes.py` finds each file and function that is large without a reason, and each reason that is not needed."""

from pathlib import Path

import pytest
from tools.sizes import FOLDERS, MAX_COMPLEXITY, MAX_FILE_LINES, MAX_FUNCTION_LINES, violations

DOCSTRING = '"""A module."""\n'
FILE_REASON = "# Over 400 lines: a table of numbers.\n"
REASON = "# Large: one case for each number.\n"
TOO_LONG = f"more than {MAX_FUNCTION_LINES}"
TOO_COMPLEX = "is too complex"
NOT_NEEDED = "no reason is needed here"


def lines(count: int) -> str:
    """A module's body of so many lines."""
    return "".join(f"x{number} = {number}\n" for number in range(count))


def long(count: int, *, above: str = "", docstring: str = "") -> str:
    """A function of so many lines besides its docstring."""
    return f"{above}def f():\n{docstring}" + "    x = 1\n" * (count - 1)


def branching(complexity: int, *, above: str = "", mark: str = "") -> str:
    """A short function of this complexity."""
    return f"{above}def f(x):{mark}\n" + "    if x == 1: return\n" * (complexity - 1)


def method(function: str) -> str:
    """The function as a method."""
    return "class C:\n" + "".join(f"    {line}\n" for line in function.splitlines())


def found(folder: Path, text: str) -> list[tuple[int, str]]:
    """The lines and problems in a file with this text."""
    (folder / "planted.py").write_text(text)
    return [(each.line, each.problem) for each in violations([folder])]


VIOLATIONS = {
    "a long file": (DOCSTRING + lines(MAX_FILE_LINES), 2, f"the file has {MAX_FILE_LINES + 1} lines"),
    "a long file without a docstring": (lines(MAX_FILE_LINES + 1), 1, "the file has"),
    "a long file with its reason elsewhere": (DOCSTRING + "x = 1\n" + FILE_REASON + lines(400), 2, "the file has"),
    "a long file with a reason without words": (DOCSTRING + "# Over 400 lines:\n" + lines(400), 2, "the file has"),
    "a long function": (long(MAX_FUNCTION_LINES + 1), 1, TOO_LONG),
    "a long async function": ("async " + long(MAX_FUNCTION_LINES + 1), 1, TOO_LONG),
    "a long method": (method(long(MAX_FUNCTION_LINES + 1)), 2, TOO_LONG),
    "a long function with a docstring": (long(41, docstring='    """Long."""\n'), 1, TOO_LONG),
    "a long function with a reason without words": (long(41, above="# Large:\n"), 1, TOO_LONG),
    "a long function with its reason within": (long(2) + "    # Large: so.\n" + "    x = 1\n" * 40, 1, TOO_LONG),
    "a long function with an empty line below its reason": (long(41, above=REASON + "\n"), 3, TOO_LONG),
    "a complex function": (branching(MAX_COMPLEXITY + 1), 1, TOO_COMPLEX),
    "a complex method": (method(branching(MAX_COMPLEXITY + 1)), 2, TOO_COMPLEX),
    "a complex function with noqa": (branching(MAX_COMPLEXITY + 1, mark="  # noqa: C901"), 1, TOO_COMPLEX),
    "a reason of a small file": (DOCSTRING + FILE_REASON + lines(3), 2, NOT_NEEDED),
    "a reason of a small function": (long(MAX_FUNCTION_LINES, above=REASON), 1, NOT_NEEDED),
    "a second reason": (long(41, above=REASON + REASON), 1, NOT_NEEDED),
    "a reason of nothing": (DOCSTRING + lines(3) + REASON, 5, NOT_NEEDED),
    "a file's reason above a function": (long(41, above=FILE_REASON), 2, TOO_LONG),
}

ALLOWED = {
    "a file at the limit": DOCSTRING + lines(MAX_FILE_LINES - 1),
    "a long file with its reason": DOCSTRING + FILE_REASON + lines(MAX_FILE_LINES),
    "a long file with its reason after an empty line": DOCSTRING + "\n" + FILE_REASON + lines(MAX_FILE_LINES),
    "a function at the limit": long(MAX_FUNCTION_LINES),
    "a function at the limit besides its docstring": long(40, docstring='    """\n    One.\n\n    Two.\n    """\n'),
    "a long function with its reason": long(41, above=REASON),
    "a long function with a reason of two lines": long(41, above=REASON + "# And more.\n"),
    "a long function with its reason above its decorators": long(41, above=REASON + "@a\n@b(\n    1\n)\n"),
    "a long method with its reason": method(long(41, above=REASON)),
    "a function at the limit of complexity": branching(MAX_COMPLEXITY),
    "a complex function with its reason": branching(MAX_COMPLEXITY + 1, above=REASON),
    "a long and complex function with one reason": branching(45, above=REASON),
    "the form of a reason in a text": 'x = """\n# Large: no comment.\n"""\n',
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_what_is_large_without_a_reason_is_found(name: str, tmp_path: Path) -> None:
    """Each violation is found in its line, by what is wrong with it."""
    text, line, problem = VIOLATIONS[name]
    assert [where for where, what in found(tmp_path, text) if problem in what] == [line]


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_small_or_has_a_reason_is_allowed(name: str, tmp_path: Path) -> None:
    """Nothing is found at a limit, nor where a reason stands in its place."""
    assert found(tmp_path, ALLOWED[name]) == []


def test_the_code_itself_has_a_reason_for_all_that_is_large() -> None:
    """Nothing is found in the project."""
    assert [str(each) for each in violations(FOLDERS)] == []
