"""
Output of the command line: tables for people, JSON or YAML for programs, one line for an error.

Every command that prints data builds plain values first and passes them to `emit`, so that `-o json` and `-o yaml`
contain everything in the table. Tables go to standard output without wrapping cells away; other output (progress,
hints, errors) goes to standard error.
"""

import enum
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from rich.console import Console

OK = 0
FAILED = 1
"""The command worked and its answer is no: a finding, a difference, a refusal."""
WRONG_USAGE = 2
"""A flag, a configuration key or a name is wrong, or there is nothing to connect to. Nothing was done."""
BROKEN = 3
"""An invariant is broken: the log is damaged, or Headgate has a bug."""


class CliError(Exception):
    """Ends a command with one line and an exit code."""

    def __init__(self, message: str, code: int = WRONG_USAGE) -> None:
        super().__init__(message)
        self.code = code


class Output(enum.StrEnum):
    """The values of `-o`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def console(*, stderr: bool = False) -> "Console":
    """Where to print. Colours only on a terminal; a pipe gets whole lines, however long."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 10_000
    return Console(stderr=stderr, highlight=False, soft_wrap=True, width=width)


def plain(data: Any) -> Any:
    """Structs, enums and tuples as values that JSON and YAML have."""
    return msgspec.to_builtins(data, str_keys=True, enc_hook=_part)


def _part(value: object) -> object:
    """Values of the state without a direct encoding, in an encodable form."""
    from headgate.core.state import sharing

    return sharing.plain(value)


def emit(data: Any, output: Output, table: Callable[[], None]) -> None:
    """Print data in the requested format. `table` prints it for people."""
    match output:
        case Output.TABLE:
            table()
        case Output.JSON:
            sys.stdout.write(msgspec.json.format(msgspec.json.encode(data, enc_hook=_part), indent=2).decode() + "\n")
        case Output.YAML:
            sys.stdout.write(_yaml(data))


def emit_one(data: Any, output: Output) -> None:
    """Print one item of a stream: a JSON line, or a YAML document."""
    if output is Output.YAML:
        sys.stdout.write("---\n" + _yaml(data))
    else:
        sys.stdout.write(msgspec.json.encode(data, enc_hook=_part).decode() + "\n")
    sys.stdout.flush()


def _yaml(data: Any) -> str:
    import yaml

    text: str = yaml.safe_dump(plain(data), sort_keys=False, allow_unicode=True, width=1000)
    return text


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """A table without lines, as kubectl's. `right` names the columns that hold numbers."""
    from rich.table import Table
    from rich.text import Text

    out = console()
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=not out.is_terminal)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    out.print(table)


def say(text: str) -> None:
    """A line for people that is not the command's data."""
    sys.stderr.write(text + "\n")
