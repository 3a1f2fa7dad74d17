"""
`headgate demo`: three teams, two flavors, two hundred jobs, on a machine with nothing but this package.

It starts a whole cell (`headgate.cli.supervisor`), creates what a platform team would create, submits the jobs of three
teams, and watches: not the cluster, but the log, folded in this process as every process folds it. When all jobs are
done it shows the waiting times, audits the log, repeats the decision of every cycle, and prints the history of the job
that waited longest.

`show` is the demo itself; it also runs against an existing cluster (`make demo-kube`).
"""

import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import anyio
import typer

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.kubeconfig import resolve
from headgate.adapters.kubernetes.resources import RESOURCES, Resource
from headgate.cli import audit, cell, explain, replay
from headgate.cli.demo_objects import TEAMS, Manifest, cluster_objects, job_objects
from headgate.cli.folding import Folding
from headgate.cli.options import SourceOptions
from headgate.cli.output import FAILED, OK, CliError, console, say
from headgate.cli.source import Source, decoded, open_source
from headgate.cli.supervisor import Supervisor, UpOptions, until_signal
from headgate.cli.up import greet
from headgate.core import fold
from headgate.core.api.job_kinds import shown_name
from headgate.core.views.descriptions import format_amount, format_span
from headgate.core.views.run_metrics import RunTally, percentile

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(add_completion=False)

NAME = "demo"
SUBMIT_S_MAX = 12.0
SUBMIT_S_EACH = 0.06
"""The time over which the jobs are submitted: so much per job, up to the maximum."""
IN_FLIGHT_MAX = 8
"""Requests at once while submitting."""
REFRESH_S = 0.25
LINE_EVERY_S = 2.0
"""The interval of progress lines without a terminal."""
QUIET_S = 0.5
"""The log has settled when nothing was appended for so long."""
TIMEOUT_S = 300.0
_EPILOG = """\b
Examples:
  headgate demo
  headgate demo --keep          leave it running: look around with queue status, explain, kubectl
  headgate demo --jobs 20       a short one
  headgate demo --print         the manifests, without running anything
"""


@app.command(epilog=_EPILOG)
def demo(
    jobs: Annotated[int, typer.Option("--jobs", metavar="N", min=1, max=5000, help="How many jobs.")] = 200,
    seed: Annotated[int, typer.Option("--seed", help="Which jobs.")] = 1,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cell running at the end, until Ctrl-C.")] = False,
    only_print: Annotated[bool, typer.Option("--print", help="Print the manifests and end.")] = False,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Where to keep it: ./.headgate/demo if left out.")
    ] = None,
) -> None:
    """Watch jobs of three teams share a cluster: queued, admitted within quota, run, finished; and read it all back."""
    if only_print:
        import yaml

        print(yaml.safe_dump_all([*cluster_objects(), *job_objects(jobs, seed)], sort_keys=False), end="")
        return
    directory = data or cell.ROOT / NAME
    make_room(directory, NAME)
    try:
        failed = anyio.run(_demo, directory, jobs, seed, keep, backend_options={"use_uvloop": True})
    except KeyboardInterrupt:
        say("stopped")
        failed = False
    raise typer.Exit(FAILED if failed else OK)


def make_room(directory: Path, name: str) -> None:
    """
    Remove the previous demo, because each begins with an empty log; nothing else is removed.

    Raises CliError when a cell runs in the directory, or when it contains anything but a demo of this name.
    """
    found = cell.read(directory)
    if found is not None and found.running:
        raise CliError(f"a cell runs in {directory} already: stop it, or name another --data")
    if found is not None and found.info.cell == name:
        shutil.rmtree(directory)
    elif directory.exists() and any(directory.iterdir()):
        raise CliError(f"{directory} is not empty and holds no demo: name another --data")


async def _demo(directory: Path, jobs: int, seed: int, keep: bool) -> bool:
    begun = time.monotonic()
    async with until_signal(), Supervisor(UpOptions(data=directory, cell=NAME), say) as running:
        await running.wait_ready()
        console().print(
            f"[bold]headgate demo[/bold]: broker, simulated cluster and six processes are up after "
            f"{time.monotonic() - begun:.1f} s; {jobs} jobs of {len(TEAMS)} teams"
        )
        failed = await show(running, jobs, seed)
        console().print(f"\n[dim]all of it took {time.monotonic() - begun:.1f} s; the log stays in {directory}[/dim]")
        if keep:
            greet(running)
            await anyio.sleep_forever()
    return failed


async def show(
    running: Supervisor,
    jobs: int,
    seed: int,
    *,
    half_way: Callable[[], Awaitable[None]] | None = None,
    finished: Callable[[], Awaitable[bool]] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> bool:
    """
    The demo beside a cell that is ready: create, submit, watch, and read it all back; whether anything was found wrong.

    `half_way` is called once when half of the jobs are finished, `finished` behind the table of all; it says whether it
    found something wrong.

    Raises CliError when the jobs do not finish within `timeout_s`.
    """
    where = SourceOptions(data=running.data)
    async with open_source(where) as source:
        tally = await _run(running, source, jobs, seed, half_way, timeout_s)
    _final_table(tally)
    failed = await finished() if finished is not None else False
    failed |= await _prove(where)
    await _story(where, tally)
    return failed


# --- running -------------------------------------------------------------------------------------------------------


async def _run(
    running: Supervisor,
    source: Source,
    jobs: int,
    seed: int,
    half_way: Callable[[], Awaitable[None]] | None,
    timeout_s: float,
) -> RunTally:
    """Create everything, submit the jobs, and follow the log until all of them are finished and it is quiet."""
    tally = RunTally(fold.new_state(source.cell))
    with anyio.move_on_after(timeout_s) as limit:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_follow, source, tally)
            async with open_transport(resolve(kubeconfig=running.kubeconfig)) as transport:
                client = KubeClient(transport)
                for manifest in cluster_objects():
                    await _create(client, manifest)
                tasks.start_soon(_submit, client, job_objects(jobs, seed))
                if half_way is not None:
                    tasks.start_soon(_at_half, tally, jobs, half_way)
                await _watch(tally, jobs)
                await _settle(tally)
            tasks.cancel_scope.cancel()
    if limit.cancelled_caught:
        raise CliError(
            f"only {len(tally.jobs_finished)} of {jobs} jobs finished within {timeout_s:g} s; look at "
            f"{running.data / 'logs'} and `headgate queue status --data {running.data}`",
            FAILED,
        )
    return tally


async def _follow(source: Source, tally: RunTally) -> None:
    folding = Folding(source)
    async for entries in source.follow(1):
        for logged in decoded(entries):
            tally.state = await folding.apply(tally.state, logged)
            tally.feed(logged)


async def _create(client: KubeClient, manifest: Manifest) -> None:
    resource = _resource_of(manifest)
    namespace = manifest["metadata"].get("namespace")
    await client.create(resource, manifest, namespace, field_manager="headgate-demo")


def _resource_of(manifest: Manifest) -> Resource:
    return next(each for each in RESOURCES.values() if each.kind == manifest["kind"])


async def _submit(client: KubeClient, jobs: list[Manifest]) -> None:
    """Submit the jobs, evenly over time."""
    submit_s = min(SUBMIT_S_MAX, SUBMIT_S_EACH * len(jobs))
    limiter = anyio.CapacityLimiter(IN_FLIGHT_MAX)
    begun = anyio.current_time()

    async def submit(job: Manifest) -> None:
        async with limiter:
            await _create(client, job)

    async with anyio.create_task_group() as tasks:
        for number, job in enumerate(jobs):
            await anyio.sleep_until(begun + submit_s * number / len(jobs))
            tasks.start_soon(submit, job)


async def _watch(tally: RunTally, jobs: int) -> None:
    """Show the progress until every job is finished."""
    out = console()
    if out.is_terminal:
        from rich.live import Live

        with Live(console=out, auto_refresh=False, transient=True) as live:
            while len(tally.jobs_finished) < jobs:
                live.update(_progress(tally, jobs), refresh=True)
                await anyio.sleep(REFRESH_S)
        return
    shown_at = 0.0
    while len(tally.jobs_finished) < jobs:
        if anyio.current_time() - shown_at >= LINE_EVERY_S:
            shown_at = anyio.current_time()
            out.print(_line(tally, jobs))
        await anyio.sleep(REFRESH_S)


async def _at_half(tally: RunTally, jobs: int, then: Callable[[], Awaitable[None]]) -> None:
    while True:
        if 2 * len(tally.jobs_finished) >= jobs:
            return await then()
        await anyio.sleep(REFRESH_S)


async def _settle(tally: RunTally) -> None:
    """Wait until the processes have appended everything."""
    before = -1
    while before != tally.state.position:
        before = tally.state.position
        await anyio.sleep(QUIET_S)


def _progress(tally: RunTally, jobs: int) -> "RenderableType":
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("TEAM", "PENDING", "ADMITTED", "RUNNING", "FINISHED"):
        table.add_column(column, justify="left" if column == "TEAM" else "right")
    for team, each in tally.standings().items():
        table.add_row(team, *map(str, (each.pending, each.admitted, each.running, each.finished)))
    used, quota = tally.in_use()
    bars = Table.grid(padding=(0, 2, 0, 0))
    bars.add_row("cpu in use", ProgressBar(quota.get("cpu") or 1, used.get("cpu", 0), 40), _cpu(used, quota))
    bars.add_row("jobs finished", ProgressBar(jobs, len(tally.jobs_finished), 40), f"{len(tally.jobs_finished)}/{jobs}")
    return Group(table, bars)


def _line(tally: RunTally, jobs: int) -> str:
    used, quota = tally.in_use()
    teams = "; ".join(
        f"{team} {each.pending} pending, {each.admitted} admitted, {each.running} running, {each.finished} finished"
        for team, each in tally.standings().items()
    )
    return f"{len(tally.jobs_finished):>4}/{jobs} jobs finished, cpu {_cpu(used, quota)}: {teams}"


def _cpu(used: dict[str, int], quota: dict[str, int]) -> str:
    return f"{format_amount('cpu', used.get('cpu', 0))}/{format_amount('cpu', quota.get('cpu', 0))}"


# --- the end -------------------------------------------------------------------------------------------------------


def _final_table(tally: RunTally) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("TEAM", "JOBS", "WAIT P50", "WAIT P90", "WAIT MAX", "ADMITTED ON BORROWED QUOTA", "PREEMPTED"):
        table.add_column(column, justify="left" if column == "TEAM" else "right")
    for team in TEAMS:
        each = tally.of(team)
        waits = each.waits_ms
        spans = (format_span(percentile(waits, share)) for share in (0.5, 0.9))
        counts = (str(each.borrowed), str(each.preempted))
        table.add_row(team, str(each.finished), *spans, format_span(max(waits, default=0)), *counts)
    out = console()
    out.print()
    out.print(table)
    failed = [shown_name(job) for job, how in tally.jobs_finished.items() if how != "Complete"]
    out.print(f"mean use of cpu quota: {tally.utilisation('cpu'):.0%}" + (f"; failed: {failed}" if failed else ""))


async def _prove(where: SourceOptions) -> bool:
    """Audit the log and repeat the decision of every cycle; whether anything was found."""
    report = await audit.judge(where)
    answer = await replay.again(where, None, None, verify=True)
    console().print()
    audit.show(report)
    replay.show(answer, verified=True)
    return bool(report.findings or answer.replayed.differences)


async def _story(where: SourceOptions, tally: RunTally) -> None:
    """The history of the job that waited longest."""
    waited_ms, key = tally.busiest
    if not key:
        return
    out = console()
    out.print(
        f"\n[bold]The job that waited longest[/bold] ({format_span(waited_ms)}), as `headgate explain` tells it:\n"
    )
    explain.show(await explain.tell(where, key, "", None))
