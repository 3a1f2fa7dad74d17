"""What the pages have in common: their head, tables, and Markdown's special characters."""

import inspect
from collections.abc import Iterable, Sequence

NOTE = "Generated from the code by `make schemas`; do not edit."


def page(title: str, introduction: str, *parts: str) -> str:
    """A page: its title, what it is about, and its parts."""
    return (
        "\n\n".join([f"# {title}", f"<!-- {NOTE} -->", introduction.strip(), *(part.strip() for part in parts)]) + "\n"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table. A cell may hold Markdown, and no line breaks."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "&#124;").split()) or " "


def code(text: object) -> str:
    """As code, in one line. Within a table a bar in backticks means different things to different renderers."""
    written = str(text)
    return f"<code>{safe(written)}</code>" if "|" in written else f"`{written}`"


def docstring(of: object) -> str:
    """The docstring, its paragraphs as they are. Empty when there is none."""
    return safe(inspect.cleandoc(getattr(of, "__doc__", None) or ""))


def safe(text: str) -> str:
    """The text with `<word>` outside of code shown as it is, and not taken for HTML."""
    pieces = text.split("`")
    return "`".join(piece.replace("<", "&lt;") if index % 2 == 0 else piece for index, piece in enumerate(pieces))
