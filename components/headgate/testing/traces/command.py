"""`headgate simulate`: a real cluster's trace through the whole system, under virtual time."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from headgate.adapters.log import LogEntry
from headgate.adapters.logfile import LogFileWriter
from headgate.cli import options
from headgate.cli.output import FAILED, OK, CliError, Output, console, emit
from headgate.testing.traces import openb
from headgate.testing.traces.report import TraceReport, as_dict, picture
from headgate.testing.traces.run import Progress, run_trace

app = typer.Typer(add_completion=False)

_EPILOG = """\b
Examples:
  headgate simulate --nodes nodes.csv --pods pods.csv
  headgate simulate --nodes nodes.csv --pods pods.csv --compress 400 --out busy/
  headgate explain --log busy/log.jsonl.gz be/openb-pod-0042
  headgate audit --log busy/log.jsonl.gz
The format is that of Alibaba's cluster-trace-gpu-v2023 (openb_node_list_*.csv, openb_pod_list_*.csv).
Exit code 1 when a task did not come to its end.
"""

LOG_NAME = "log.jsonl.gz"
PICTURE_NAME = "utilisation.svg"
REPORT_NAME = "report.json"


@app.command(epilog=_EPILOG)
def simulate(
    nodes: Annotated[Path, typer.Option(help="The nodes, as CSV.")],
    pods: Annotated[Path, typer.Option(help="The tasks, as CSV.")],
    out: Annotated[Path, typer.Option(help="Folder for the log, the report and the picture.")] = Path("simulation"),
    compress: Annotated[
        float, typer.Option(help="Let tasks arrive this many times faster than in the trace; run times stay.")
    ] = 1.0,
    tasks: Annotated[int | None, typer.Option(min=1, help="Only the first so many tasks.")] = None,
    output: options.OutputOption = Output.TABLE,
) -> None:
    """Run a trace: tasks become Jobs in queues by QoS class, GPU models become flavors, time is virtual."""
    if not compress > 0:
        raise CliError(f"--compress is {compress:g}: give a number above 0")
    try:
        trace = openb.read_trace(nodes, pods)
    except openb.TraceError as error:
        raise CliError(str(error)) from error
    if tasks is not None:
        trace = openb.Trace(nodes=trace.nodes, tasks=trace.tasks[:tasks])
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CliError(f"--out {out} cannot be made: {error.strerror}") from error
    report = _run(trace, compress, out / LOG_NAME)
    title = f"{len(trace.tasks)} tasks of {pods.name} on {len(trace.nodes)} nodes"
    (out / PICTURE_NAME).write_text(picture(report, title if compress == 1 else f"{title}, arrivals x{compress:g}"))
    (out / REPORT_NAME).write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    emit(as_dict(report), output, lambda: _show(report, out))
    raise typer.Exit(FAILED if report.unfinished else OK)


def _run(trace: openb.Trace, compress: float, log: Path) -> TraceReport:
    with LogFileWriter(log) as writer, _progress(len(trace.tasks)) as tell:

        def sink(seq: int, subject: str, time_ms: int, payload: bytes) -> None:
            writer.write((LogEntry(seq=seq, subject=subject, time_ms=time_ms, payload=payload),))

        return run_trace(trace, compress=compress, clock=time.monotonic, sink=sink, progress=tell)


@contextmanager
def _progress(tasks: int) -> Iterator[Callable[[Progress], None]]:
    """A progress bar on standard error; nothing when that is no terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[more]}"))
    out = console(stderr=True)
    with Bar(*columns, TimeElapsedColumn(), console=out, disable=not out.is_terminal) as bar:
        shown = bar.add_task("tasks finished", total=tasks, more="")

        def tell(progress: Progress) -> None:
            days = progress.virtual_s / 86400
            bar.update(shown, completed=progress.finished, more=f"day {days:.1f}, {progress.events} events")

        yield tell


def _show(report: TraceReport, out: Path) -> None:
    from rich.table import Table

    table = Table("queue", "tasks", "admitted", "waiting", "p50", "p90", "p99", "max", title="wait for admission")
    for queue in report.queues:
        waits = (queue.p50_s, queue.p90_s, queue.p99_s, queue.max_s)
        counts = (queue.tasks, queue.admitted, queue.waiting)
        table.add_row(queue.queue, *(str(count) for count in counts), *(duration(wait_s) for wait_s in waits))
    screen = console()
    screen.print(table)
    share = 100 * report.utilisation_mean
    screen.print(
        f"{report.tasks} tasks: {report.succeeded} succeeded, {report.failed} failed, {report.unfinished} unfinished"
        + "".join(f"; {count} {reason}" for reason, count in report.unfinished_why.items())
    )
    screen.print(
        f"{report.resource}: {share:.2f} % of {report.capacity} in use on average, {report.used_peak} at the peak"
    )
    screen.print(
        f"{report.cycles} cycles, {report.commits} commits, {report.events} events; "
        f"{duration(report.virtual_s)} of virtual time in {report.real_s:.1f} s"
    )
    screen.print(f"log hash {report.log_hash}")
    screen.print(f"wrote {out / LOG_NAME}, {out / PICTURE_NAME}, {out / REPORT_NAME}")


def duration(seconds: float) -> str:
    """Seconds for people: 4.2 s, 12 m 5 s, 3 h 10 m, 5.1 d."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} m {int(seconds % 60)} s"
    if seconds < 48 * 3600:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} m"
    return f"{seconds / 86400:.1f} d"
