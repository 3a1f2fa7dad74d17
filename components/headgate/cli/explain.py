"""`headgate explain`: the whole history of a workload, a job or a pod, read from the log."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import anyio
import typer

from headgate.cli import completion, options
from headgate.cli.folding import contained, snapshot_before, state_at
from headgate.cli.output import Output, console, emit
from headgate.cli.source import Source, Until, commits, open_source, parse_at
from headgate.core import fold
from headgate.core.fold.quarantine import EventFailedError, Treatments
from headgate.core.log.refusal import CommitFilter
from headgate.core.state.manifests import PODS
from headgate.core.state.tables import State
from headgate.core.views.descriptions import format_span, format_time
from headgate.core.views.explain import Explainer, Line, Lookup, Standing, Story, condensed
from headgate.core.views.lookup import POD_PREFIX, HistorySubject, UnknownWorkloadError
from headgate.events.ids import PodKey, UnixMs

if TYPE_CHECKING:
    from headgate.core.views.pod_story import PodStory

app = typer.Typer(add_completion=False)

_EPILOG = """\b
Examples:
  headgate explain train-7                    the history of Job train-7, in any namespace
  headgate explain team-a/train-7 --at 812    its state at position 812
  headgate explain train-7 --at -5m -o json   its state five minutes ago, as JSON
  headgate explain web-0 -n shop              a pod: where it was placed, and why there
  headgate explain pod/train-7                a pod that has the name of a workload or job
"""


@app.command(epilog=_EPILOG)
def explain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD|JOB|POD",
            help="A Workload, a Job or a pod: NAME or NAMESPACE/NAME, with pod/ before it for a pod of that name.",
            autocompletion=completion.explained,
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
    """
    Tell the whole story of a workload or a pod: what happened, who did it, why, what it waited for and for how long.

    Of a pod it also tells the nodes that were refused, the best nodes and their scores, and the victims, as place does.
    """
    where = options.SourceOptions(data=data, cell=cell, nats=nats, log=log)
    story = anyio.run(lambda: tell(where, name, namespace, at, whole=whole))
    emit(story, output, lambda: show(story, verbose=verbose))


async def tell(
    where: options.SourceOptions, name: str, namespace: str, at: str | None, *, whole: bool = False
) -> "Story | PodStory":
    """
    Read a history: of what exists from the newest snapshot before it, else from the beginning of the log.

    `whole` reads from the beginning in any case.

    Raises UnknownWorkloadError, CliError, and what folding raises.
    """
    until = parse_at(at)
    async with open_source(where) as source:
        story = None if whole else await _of_existing(source, until, name, namespace)
        return story or await _of_any(source, until, name, namespace)


async def _of_existing(source: Source, until: Until, name: str, namespace: str) -> "Story | PodStory | None":
    """The history of what has the name now; None when nothing has, or it has to be read from the beginning."""
    last = await state_at(source, until)
    try:
        target = Lookup.of(last).find_with_pods(name, namespace)
    except UnknownWorkloadError:
        return None
    state = await _before(source, last, target)
    if not state.position:
        return None
    try:
        return await _read(source, until, state, target)
    except EventFailedError:
        return None


async def _before(source: Source, last: State, target: HistorySubject) -> State:
    """The state of the newest snapshot that has nothing of the subject; position 0 where there is none."""
    workload = last.workloads.get(target.workload)
    until = Until(seq=last.position) if workload is None else Until(time_ms=workload.created_ms)
    while True:
        state = await snapshot_before(source, until)
        if not state.position or not _has(state, target):
            return state
        until = Until(seq=state.position - 1)


def _has(state: State, target: HistorySubject) -> bool:
    if target.is_pod:
        return target.pod in state.objects.get(PODS, {}) or target.pod in state.pods
    return target.workload in state.workloads or target.job in state.jobs


async def _of_any(source: Source, until: Until, name: str, namespace: str) -> "Story | PodStory":
    """One pass over the log to resolve the name, one to follow the workloads."""
    lookup, gate = Lookup(), CommitFilter(source.cell)
    async for logged in commits(source, until):
        if gate.admits(logged):
            lookup.feed(logged)
    target = lookup.find_with_pods(name, namespace)

    async def read(treatments: Treatments) -> "Story | PodStory":
        return await _read(source, until, fold.new_state(source.cell), target, treatments)

    return await contained(source, until, read)


async def _read(
    source: Source, until: Until, state: State, target: HistorySubject, treatments: Treatments = fold.NO_TREATMENTS
) -> "Story | PodStory":
    """The history of a subject from a state on. Raises what the fold raises."""
    if target.is_pod:
        return await _read_pod(source, until, state, target.pod, treatments)
    explainer = Explainer(state, target, treatments)
    async for logged in commits(source, until, state.position + 1):
        explainer.feed(logged)
    return explainer.story()


async def _read_pod(source: Source, until: Until, state: State, pod: PodKey, treatments: Treatments) -> "PodStory":
    """The history of a pod from a state on, with where it could go: now, or where that was decided."""
    # The engine of placement takes a while to import, and workloads do without it.
    from headgate.core.views.pod_story import PodExplainer, RecordedAttempt, answered, instead
    from headgate.processes.runtime.extensions import load_placement_plugins

    explainer = PodExplainer(state, pod, treatments)
    async for logged in commits(source, until, state.position + 1):
        explainer.feed(logged)
    plugins = load_placement_plugins()

    async def told(attempt: RecordedAttempt | None) -> "PodStory":
        at = explainer.state if attempt is None else await state_at(source, Until(seq=attempt.decided_at))
        return answered(explainer.story(), at, attempt, plugins)

    story = await told(explainer.decided)
    other = instead(story, explainer)
    return story if other is None else await told(other)


def show(story: "Story | PodStory", *, verbose: bool = False) -> None:
    """Print a history for people."""
    if isinstance(story, Story):
        _show_workload(story, verbose=verbose)
    else:
        _show_pod(story, verbose=verbose)


def _show_pod(story: "PodStory", *, verbose: bool) -> None:
    """Print the history of a pod for people, and where it could go."""
    from rich.markup import escape

    from headgate.cli.place import show_answer

    out = console()
    out.print(f"Pod [bold]{escape(story.pod)}[/bold], up to position {story.position}")
    _show_lines(story.lines, story.standing, story.now_ms, verbose=verbose)
    if story.answer is None:
        out.print(f"\nWhere it could go is not known: {escape(story.unanswered)}")
        return
    decided = "Asked now" if story.decided is None else f"Asked again as of its decision at {story.decided}"
    out.print(f"\n{decided}:")
    show_answer(story.answer)


def _show_workload(story: Story, *, verbose: bool) -> None:
    from rich.markup import escape

    out = console()
    named = ((story.job_kind, story.job), ("Workload", story.workload))
    whom = " and ".join(f"{kind} [bold]{escape(key)}[/bold]" for kind, key in named if key)
    out.print(f"{whom}, up to position {story.position}")
    _show_lines(story.lines, story.standing, story.now_ms, verbose=verbose)
    out.print(f"Configuration: {escape(story.configuration)}")
    if story.pod:
        out.print(f"A pod has this name too: `headgate explain {escape(POD_PREFIX + story.pod)}` tells its story")


def _show_lines(lines: Sequence[Line], standing: Standing, now_ms: UnixMs, *, verbose: bool) -> None:
    """Print the lines of a history and what is the case at its end."""
    from rich.markup import escape

    out = console()
    hidden = 0
    for line in lines if verbose else condensed(lines):
        if line.detail and not verbose:
            hidden += line.times
            continue
        for text in _lines(line):
            out.print(text)
    if hidden:
        out.print(f"[dim]({hidden} lines of bookkeeping are left out: -v shows them)[/dim]")
    since = f" since {format_time(standing.since_ms)}" if standing.since_ms else ""
    waited = f" ({format_span(now_ms - standing.since_ms)})" if standing.since_ms else ""
    out.print(f"\nNow [bold]{standing.stage}[/bold]{since}{waited}: {escape(standing.why)}")
    for place in standing.places:
        out.print(f"  where it could go: {escape(place)}")
    for change in standing.would_change:
        out.print(f"  what would change it: {escape(change)}")


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
