"""`headgate topology`: the domains of the flavors with a topology: what they have, who uses it, what is free."""

import enum
import sys
from collections.abc import Iterator
from typing import Annotated, Final

import anyio
import msgspec
import typer
from rich.text import Text

from headgate.cli import options
from headgate.cli.folding import state_at
from headgate.cli.output import CliError, Output, console, emit, print_table
from headgate.cli.source import open_source, parse_at
from headgate.core.state.tables import State
from headgate.core.views.descriptions import format_amount
from headgate.core.views.topology import DomainUse, DomainView, TopologyView, lowest_domains, topology_view
from headgate.core.views.topology_json import TopologySummary, to_plain, topology_summaries
from headgate.core.views.topology_picture import LEGEND, picture, step

_LIST_EPILOG = """\b
Examples:
  headgate topology list                       every flavor with a topology
  headgate topology list --at -5m -o json      as it was five minutes ago
"""
_SHOW_EPILOG = """\b
Examples:
  headgate topology show gpu                            the tree of ResourceFlavor gpu
  headgate topology show gpu --resource cpu             the same for another resource
  headgate topology show gpu --level cloud/rack         down to the racks, their hosts as cells
  headgate topology show gpu --at 812 -o json           at position 812, all resources, for a program
  headgate topology show gpu -o svg > gpu.svg           as a picture
"""


app = typer.Typer(
    name="topology",
    add_completion=False,
    no_args_is_help=True,
    help="Show topologies: capacity, use, what is free.",
    epilog=_SHOW_EPILOG,
)


class TopologyOutput(enum.StrEnum):
    """The values of `-o` of `topology show`."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"
    SVG = "svg"


LISTED_MAX: Final = 48
"""With more domains in the lowest level, each is a cell in the row of its parent unless `--level` asks for rows."""
CELLS_PER_LINE: Final = 64
_BAR: Final = 20
_LEVELS: Final = "·▂▃▅▆█"
"""A cell by the steps of the picture's colours."""
_STYLES: Final = ("dim", "cyan", "blue", "yellow", "bright_red", "red")


@app.callback()
def _group() -> None:
    """Show topologies: what their domains have, who uses it, what is free."""


@app.command("list", epilog=_LIST_EPILOG)
def list_topologies(
    at: options.At = None,
    output: options.OutputOption = Output.TABLE,
    data: options.Data = None,
    cell: options.Cell = None,
    nats: options.Nats = None,
    log: options.LogFile = None,
) -> None:
    """List the ResourceFlavors with a topology, each with its most used resource."""
    state = anyio.run(_state, options.SourceOptions(data=data, cell=cell, nats=nats, log=log), at)
    rows = topology_summaries(state)

    emit(rows, output, lambda: _print_list(rows))


@app.command("show", epilog=_SHOW_EPILOG)
def show(
    flavor: Annotated[str, typer.Argument(metavar="FLAVOR", help="A ResourceFlavor with a topology.")],
    at: options.At = None,
    resource: Annotated[
        str | None,
        typer.Option("--resource", metavar="NAME", help="The resource to show: the one most in use if left out."),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option("--level", metavar="LABEL", help="The narrowest level with a row for each domain (text only)."),
    ] = None,
    output: Annotated[TopologyOutput, typer.Option("-o", "--output", help="How to print.")] = TopologyOutput.TEXT,
    data: options.Data = None,
    cell: options.Cell = None,
    nats: options.Nats = None,
    log: options.LogFile = None,
) -> None:
    """Show the tree of a ResourceFlavor's topology: capacity, use by topology-aware workloads and by others, free."""
    state = anyio.run(_state, options.SourceOptions(data=data, cell=cell, nats=nats, log=log), at)
    view = topology_view(state, flavor, resource)
    if level is not None and level not in view.levels:
        raise CliError(f"Topology {view.topology} has no level {level!r}; it has {', '.join(view.levels)}")
    match output:
        case TopologyOutput.SVG:
            sys.stdout.write(picture(view))
        case TopologyOutput.TEXT:
            out = console()
            for line in tree_lines(view, level):
                out.print(line)
        case _:
            emit(to_plain(view), Output(output.value), lambda: None)


async def _state(where: options.SourceOptions, at: str | None) -> State:
    async with open_source(where) as source:
        return await state_at(source, parse_at(at))


def _print_list(rows: tuple[TopologySummary, ...]) -> None:
    print_table(
        ("FLAVOR", "TOPOLOGY", "LEVELS", "DOMAINS", "NODES", "RESOURCE", "TOPOLOGY-AWARE", "OTHER", "FREE", "PROBLEM"),
        (
            (
                row.flavor,
                row.topology,
                " / ".join(row.levels) or "-",
                " / ".join(map(str, row.domains)) or "-",
                str(row.nodes),
                row.resource or "-",
                *((row.amounts.topology_aware, row.amounts.other, row.amounts.free) if row.amounts else "---"),
                row.problem or "-",
            )
            for row in rows
        ),
        right=("NODES", "TOPOLOGY-AWARE", "OTHER", "FREE"),
    )


# --- the tree for people -------------------------------------------------------------------------------------------


class _Row(msgspec.Struct, frozen=True):
    """A line of the tree: a domain with its amounts, or cells of the lowest level (`domain` is None)."""

    stem: str
    domain: DomainView | None
    cells: tuple[DomainView, ...] = ()


def tree_lines(view: TopologyView, level: str | None = None) -> Iterator[Text]:
    """The lines of a tree. Rows go down to a level, by default to the lowest one where it has few domains."""
    lowest = tuple(lowest_domains(view.domains))
    shown = len(view.levels) - (len(lowest) > LISTED_MAX)
    depth = shown if level is None else view.levels.index(level) + 1
    root = DomainView(value=view.flavor, level="", nodes=view.nodes, resources=view.resources, domains=view.domains)
    rows = [_Row("", root), *_rows(view.domains, "", depth)] if depth else [_Row("", root), *_cells(lowest, "")]
    yield Text(
        f"ResourceFlavor {view.flavor}, Topology {view.topology} ({' / '.join(view.levels)}), "
        f"{view.resource or 'no resource'} at position {view.position}"
    )
    yield from _table(rows, view.resource)
    yield Text("█ topology-aware workloads  ▒ other pods  ░ free", style="dim")
    if depth < len(view.levels):
        scale = " ".join(f"{mark} {text}" for mark, text in zip(_LEVELS, LEGEND, strict=True))
        yield Text(
            f"{len(lowest)} domains of {view.levels[-1]} are cells: {scale} (--level {view.levels[-1]} lists them)",
            style="dim",
        )
    yield from _left_out(view)


def _rows(domains: tuple[DomainView, ...], stem: str, depth: int) -> Iterator[_Row]:
    for number, each in enumerate(domains, 1):
        last = number == len(domains)
        yield _Row(stem + ("└─ " if last else "├─ "), each)
        below = stem + ("   " if last else "│  ")
        if each.domains and depth > 1:
            yield from _rows(each.domains, below, depth - 1)
        elif each.domains:
            yield from _cells(tuple(lowest_domains(each.domains)), below)


def _cells(lowest: tuple[DomainView, ...], stem: str) -> Iterator[_Row]:
    for start in range(0, len(lowest), CELLS_PER_LINE):
        yield _Row(stem, None, lowest[start : start + CELLS_PER_LINE])


_COLUMNS: Final = ("NODES", "CAPACITY", "TOPOLOGY-AWARE", "OTHER", "FREE")


def _table(rows: list[_Row], resource: str) -> Iterator[Text]:
    numbers = [_numbers(row.domain, resource) if row.domain is not None else () for row in rows]
    names = [row.stem + (row.domain.value if row.domain is not None else "") for row in rows]
    wide = max(len(name) for name in names)
    widths = [max(len(title), *(len(each[at]) for each in numbers if each)) for at, title in enumerate(_COLUMNS)]
    titles = "  ".join(title.rjust(width) for title, width in zip(_COLUMNS, widths, strict=True))
    yield Text(f"{'DOMAIN'.ljust(wide)}  {titles}", style="bold")
    for row, name, cells in zip(rows, names, numbers, strict=True):
        if row.domain is None:
            line = Text(row.stem)
            for each in row.cells:
                number = step(each.resources.get(resource, DomainUse()))
                line.append(_LEVELS[number], style=_STYLES[number])
            yield line
            continue
        told = "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        line = Text(f"{name.ljust(wide)}  {told}  ").append_text(_bar(row.domain.resources.get(resource, DomainUse())))
        yield line.append(_held_by(row.domain), style="dim")


def _numbers(domain: DomainView, resource: str) -> tuple[str, ...]:
    share = domain.resources.get(resource, DomainUse())
    amounts = (share.capacity, share.used, share.other, share.free)
    return (str(domain.nodes), *(format_amount(resource, value) for value in amounts))


WORKLOADS_TOLD_MAX: Final = 3


def _held_by(domain: DomainView) -> str:
    """The workloads whose pods are assigned to a domain; of many, the first ones and how many there are besides."""
    told = [f"{key} ({pods})" for key, pods in list(domain.workloads.items())[:WORKLOADS_TOLD_MAX]]
    left = len(domain.workloads) - len(told)
    return "".join(("  ", ", ".join([*told, *([f"{left} more"] if left else [])]))) if told else ""


def _bar(share: DomainUse) -> Text:
    """Parts of the capacity; an amount above 0 that is less than a character still gets one."""
    if share.capacity <= 0:
        return Text("-" * _BAR, style="dim")

    def width(value: int) -> int:
        return min(_BAR, max(round(_BAR * value / share.capacity), 1 if value > 0 else 0))

    used = width(share.used)
    other = min(width(share.other), _BAR - used)
    free = _BAR - used - other
    if share.free > 0 and not free:
        used, other, free = (used - 1, other, 1) if used >= other else (used, other - 1, 1)
    style = _STYLES[step(share)]
    return Text("█" * used, style=style).append("▒" * other, style="magenta").append("░" * free, style="dim")


def _left_out(view: TopologyView) -> Iterator[Text]:
    by_reason: dict[str, list[str]] = {}
    for each in view.left_out:
        held = f" (still assigned: {', '.join(each.workloads)})" if each.workloads else ""
        by_reason.setdefault(each.why, []).append(each.name + held)
    for why, names in by_reason.items():
        yield Text(f"not in the tree, because {why}: {', '.join(names)}")
