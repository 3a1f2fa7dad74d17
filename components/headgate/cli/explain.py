"""`headgate explain`: a workload's whole history, read from the log."""

from typing import Annotated

import anyio
import typer

from headgate.cli import completion, options
from headgate.cli.folding import contained, snapshot_before, state_at
from headgate.cli.output import Output, console, emit
from headgate.cli.source import Source, Until, commits, open_source, parse_at
from headgate.core import fold
from headgate.core.fold.quarantine import EventFailedError, Treatments
from headgate.core.log.refusal import CommitFilter
from headgate.core.state.tables import State
from headgate.core.views.descriptions import format_span, format_time
from headgate.core.views.explain import Explainer, Line, Lookup, Story, condensed
from headgate.core.views.lookup import HistorySubject, UnknownWorkloadError

app = typer.Typer(add_completion=False)

_EPILOG = """\b
Examples:
  headgate explain train-7                    the history of Job train-7, in any namespace
  headgate explain team-a/train-7 --at 812    its state at position 812
  headgate explain train-7 --at -5m -o json   its state five minutes ago, as JSON
"""


@app.command(epilog=_EPILOG)
def explain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD|JOB",
            help="A Workload or a Job: NAME or NAMESPACE/NAME.",
            autocompletion=completion.workloads,
        ),
    ],
    at: options.At = None,
    namespace: options.Namespace = "",
    whole: Annotated[
        bool, typer.Option("--whole", help="Also the histories of deleted objects that had the same name.")
    ] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="All events, with repeated attempts.")] = False,
    output: options.OutputOption = Output.TABLE,
    data: options.Data = None,
    cell: options.Cell = None,
    nats: options.Nats = None,
    log: options.LogFile = None,
) -> None:
    """Tell a workload's whole story: what happened, who did it, why, what it waited for and for how long."""
    where = options.SourceOptions(data=data, cell=cell, nats=nats, log=log)
    story = anyio.run(lambda: tell(where, name, namespace, at, whole=whole))
    emit(story, output, lambda: show(story, verbose=verbose))


async def tell(
    where: options.SourceOptions, name: str, namespace: str, at: str | None, *, whole: bool = False
) -> Story:
    """
    Read a history: of an existing workload from the newest snapshot before it, else from the beginning of the log.

    `whole` reads from the beginning in any case.

    Raises UnknownWorkloadError, CliError, and what folding raises.
    """
    until = parse_at(at)
    async with open_source(where) as source:
        story = None if whole else await _of_existing(source, until, name, namespace)
        return story or await _of_any(source, until, name, namespace)


async def _of_existing(source: Source, until: Until, name: str, namespace: str) -> Story | None:
    """The history of what has the name now; None when nothing has, or it has to be read from the beginning."""
    last = await state_at(source, until)
    try:
        target = Lookup.of(last).find(name, namespace)
    except UnknownWorkloadError:
        return None
    state = await _before(source, last, target)
    if not state.position:
        return None
    explainer = Explainer(state, target)
    try:
        async for logged in commits(source, until, state.position + 1):
            explainer.feed(logged)
    except EventFailedError:
        return None
    return explainer.story()


async def _before(source: Source, last: State, target: HistorySubject) -> State:
    """The state of the newest snapshot that has neither the workload nor its job; position 0 where there is none."""
    workload = last.workloads.get(target.workload)
    until = Until(seq=last.position) if workload is None else Until(time_ms=workload.created_ms)
    while True:
        state = await snapshot_before(source, until)
        if not state.position or (target.workload not in state.workloads and target.job not in state.jobs):
            return state
        until = Until(seq=state.position - 1)


async def _of_any(source: Source, until: Until, name: str, namespace: str) -> Story:
    """One pass over the log to resolve the name, one to follow the workloads."""
    lookup, gate = Lookup(), CommitFilter(source.cell)
    async for logged in commits(source, until):
        if gate.admits(logged):
            lookup.feed(logged)
    target = lookup.find(name, namespace)

    async def read(treatments: Treatments) -> Story:
        explainer = Explainer(fold.new_state(source.cell), target, treatments)
        async for logged in commits(source, until):
            explainer.feed(logged)
        return explainer.story()

    return await contained(source, until, read)


def show(story: Story, *, verbose: bool = False) -> None:
    """Print a history for people."""
    from rich.markup import escape

    out = console()
    named = ((story.job_kind, story.job), ("Workload", story.workload))
    whom = " and ".join(f"{kind} [bold]{escape(key)}[/bold]" for kind, key in named if key)
    out.print(f"{whom}, up to position {story.position}")
    hidden = 0
    for line in story.lines if verbose else condensed(story.lines):
        if line.detail and not verbose:
            hidden += line.times
            continue
        for text in _lines(line):
            out.print(text)
    if hidden:
        out.print(f"[dim]({hidden} lines of bookkeeping are left out: -v shows them)[/dim]")
    standing = story.standing
    since = f" since {format_time(standing.since_ms)}" if standing.since_ms else ""
    waited = f" ({format_span(story.now_ms - standing.since_ms)})" if standing.since_ms else ""
    out.print(f"\nNow [bold]{standing.stage}[/bold]{since}{waited}: {escape(standing.why)}")
    for place in standing.places:
        out.print(f"  where it could go: {escape(place)}")
    for change in standing.would_change:
        out.print(f"  what would change it: {escape(change)}")
    out.print(f"Configuration: {escape(story.configuration)}")


def _lines(line: Line) -> list[str]:
    from rich.markup import escape

    head = f"[cyan]{line.position!s:>8}[/cyan] [dim]{format_time(line.time_ms)}[/dim] {line.producer:<15} "
    text = f"{head}[bold]{line.event}[/bold] {escape(line.text)}"
    if line.reason and line.reason not in line.text:
        text += f" [yellow]{escape(f'[{line.reason}]')}[/yellow]"
    if line.until is not None and line.until_ms is not None:
        times = f"x{line.times}, " if line.times > 1 else ""
        text += f" [dim]({times}until {line.until} at {format_time(line.until_ms)})[/dim]"
    lines = [text]
    indent = " " * 10
    if line.message:
        lines.append(f"{indent}{escape(line.message)}")
    if line.waited_ms is not None:
        lines.append(f"{indent}[green]waited {format_span(line.waited_ms)}[/green] for {escape(line.waited_for)}")
    return lines
