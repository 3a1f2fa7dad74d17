"""`headgate audit`: check a log, running or recorded, against everything that the design promises."""

import anyio
import typer

from headgate.cli import options
from headgate.cli.output import FAILED, OK, Output, console, emit
from headgate.cli.source import open_source
from headgate.core.audit import CHECKS, Audit, Report

app = typer.Typer(add_completion=False)

_EPILOG = """\b
Examples:
  headgate audit                        the cell that runs here
  headgate audit --log run.jsonl.gz     an exported or simulated log
  headgate audit -o json | jq .findings
Exit code 1 when there is a finding.
"""


@app.command(epilog=_EPILOG)
def audit(
    output: options.OutputOption = Output.TABLE,
    data: options.Data = None,
    cell: options.Cell = None,
    nats: options.Nats = None,
    log: options.LogFile = None,
) -> None:
    """Check that the log keeps what the design promises: order, chains, lifecycle, quota, durability, nothing lost."""
    where = options.SourceOptions(data=data, cell=cell, nats=nats, log=log)
    report = anyio.run(judge, where)
    emit(report, output, lambda: show(report))
    raise typer.Exit(FAILED if report.findings else OK)


async def judge(where: options.SourceOptions) -> Report:
    """Read the whole log and judge it. Raises CliError."""
    async with open_source(where) as source:
        auditor = Audit(source.cell)
        async for entries in source.read():
            for entry in entries:
                auditor.feed_entry(entry.seq, entry.subject, entry.payload, entry.time_ms)
        return auditor.report()


def show(report: Report) -> None:
    """One line a finding, and a summary."""
    from rich.markup import escape

    out = console()
    for finding in report.findings:
        out.print(f"[cyan]{finding.position!s:>8}[/cyan] [red]{finding.check}[/red] {escape(finding.text)}")
    out.print(summary(report))


def summary(report: Report) -> str:
    """The audit in one line."""
    read = f"{report.commits} commits, {report.events} events, {report.reservations} reservations"
    span = f"positions {report.first} to {report.last}"
    if not report.findings:
        return f"audit: {len(CHECKS)} checks over {span} ({read}): no findings"
    short = "" if report.folded_to == report.last else f"; the state checks end at position {report.folded_to}"
    return f"audit: {len(CHECKS)} checks over {span} ({read}): {len(report.findings)} findings{short}"
