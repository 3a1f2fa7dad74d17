"""`headgate audit`: check a log, running or recorded, against everything that the design promises."""

from typing import TYPE_CHECKING, Annotated

import anyio
import msgspec
import typer

from headgate.cli import options
from headgate.cli.folding import treatments_of
from headgate.cli.output import FAILED, OK, Output, console, emit, say
from headgate.cli.source import BrokerSource, Source, Until, open_source
from headgate.core import fold
from headgate.core.audit.log import CHECKS, Audit, AuditReport
from headgate.core.fold.quarantine import Treatments
from headgate.events.commit import UnreadableCommitError

if TYPE_CHECKING:
    from headgate.core.audit.stores import FeedJudge, SeenRecord

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
    kubeconfig: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="The cluster whose record of the cell is held against the log; that of a cell of `up`."
        ),
    ] = "",
) -> None:
    """Check that the log, and what stands beside it, keep what the design promises."""
    where = options.SourceOptions(data=data, cell=cell, nats=nats, log=log)
    report = anyio.run(judge, where, kubeconfig)
    emit(report, output, lambda: show(report))
    raise typer.Exit(FAILED if report.findings else OK)


async def judge(where: options.SourceOptions, kubeconfig: str = "") -> AuditReport:
    """
    Read and check the whole log, and the data beside it on its broker.

    Raises CliError, and LogDamaged where the broker cannot deliver what it claims.
    """
    async with open_source(where) as source:
        if isinstance(source, BrokerSource):
            return await _judge_cell(source, kubeconfig)
        auditor = await _judge_log(source, Audit(source.cell))
        if (again := await _past_failures(source, auditor)) is not None:
            auditor = await _judge_log(source, Audit(source.cell, treatments=again))
        return auditor.report()


async def _past_failures(source: Source, auditor: Audit) -> Treatments | None:
    """What has to be quarantined for an audit to pass an event that cannot be folded; None if nothing."""
    if auditor.failed is None:
        return None
    try:
        return await treatments_of(source, Until(seq=auditor.last))
    except (fold.BrokenLogError, UnreadableCommitError):
        # The log is broken after it: checks that need the state end at the failure, and all others are done.
        return None


async def _judge_log(source: Source, auditor: Audit, feed: "FeedJudge | None" = None) -> Audit:
    async for entries in source.read():
        for entry in entries:
            logged = auditor.feed_entry(entry.seq, entry.subject, entry.payload, entry.time_ms)
            if feed is not None and logged is not None:
                feed.expect(logged)
    return auditor


async def _record(source: BrokerSource, kubeconfig: str) -> "SeenRecord | None":
    """The cluster's record of the cell, where a cluster is available."""
    from headgate.adapters.kubernetes.errors import KubeConfigurationError, KubernetesError
    from headgate.processes.recovery.evidence import look_at_record
    from headgate.processes.runtime.settings import RecordSettings

    kubeconfig = kubeconfig or (source.info.kubeconfig if source.info is not None else "")
    if not kubeconfig:
        return None
    try:
        return await look_at_record(source.cell, kubeconfig=kubeconfig, namespace=RecordSettings().namespace)
    except (KubeConfigurationError, KubernetesError, TimeoutError) as error:
        say(f"the cluster's record of the cell is not looked at: {str(error) or 'the API server does not answer'}")
        return None


async def _judge_cell(source: BrokerSource, kubeconfig: str) -> AuditReport:
    from headgate.core.audit.stores import FeedJudge, judge
    from headgate.processes.recovery.evidence import gather, look_at_feed

    # The data beside the log is read first: a running cell's log then reaches at least as far.
    evidence = await gather(source.log, source.cell)
    if (record := await _record(source, kubeconfig)) is not None:
        looked_at = (*evidence.looked_at, "the cluster's record")
        evidence = msgspec.structs.replace(evidence, record=record, looked_at=looked_at)
    positions = [seen.position for seen in evidence.snapshots]
    auditor, feed = Audit(source.cell, positions), FeedJudge(source.cell)
    await _judge_log(source, auditor, feed)
    if (again := await _past_failures(source, auditor)) is not None:
        auditor, feed = Audit(source.cell, positions, again), FeedJudge(source.cell)
        await _judge_log(source, auditor, feed)
    looked_at = evidence.looked_at
    found = judge(auditor, evidence)
    if auditor.folds:
        if await look_at_feed(source.log, source.cell, feed, auditor.state.branches):
            looked_at = (*looked_at, f"{feed.messages} messages of the feed")
        found += feed.findings
    return auditor.report(found, looked_at)


def show(report: AuditReport) -> None:
    """One line a finding, and a summary."""
    from rich.markup import escape

    out = console()
    for finding in report.findings:
        out.print(f"[cyan]{finding.position!s:>8}[/cyan] [red]{finding.check}[/red] {escape(finding.text)}")
    out.print(summary(report))


def summary(report: AuditReport) -> str:
    """The audit in one line."""
    read = f"{report.commits} commits, {report.events} events, {report.reservations} reservations"
    span = f"positions {report.first} to {report.last}"
    if report.looked_at:
        span += f" and {', '.join(report.looked_at)}"
    if not report.findings:
        return f"audit: {len(CHECKS)} checks over {span} ({read}): no findings"
    short = "" if report.folded_to == report.last else f"; the state checks end at position {report.folded_to}"
    return f"audit: {len(CHECKS)} checks over {span} ({read}): {len(report.findings)} findings{short}"
