"""`headgate quarantine`: objects in quarantine because of a defect, and how to retry them."""

import uuid
from pathlib import Path
from typing import Annotated, Any

import anyio
import msgspec
import typer

from headgate.cli import options
from headgate.cli.folding import state_at
from headgate.cli.output import CliError, Output, console, emit, print_table, say
from headgate.cli.source import open_source, parse_at
from headgate.core.api.job_kinds import kind_name, kind_of, shown_name
from headgate.core.fold.quarantine import FOLD, RETRY, retried_by, shown_object
from headgate.core.state.tables import QuarantineRecord, State
from headgate.core.views.descriptions import format_time
from headgate.events.ids import JobKey, split_key

_LIST = """\b
Examples:
  headgate quarantine list                                objects in quarantine, since when, why
  headgate quarantine show Workload team-a/job-train-7-4f1c2
  headgate quarantine retry Workload team-a/job-train-7-4f1c2
"""
app = typer.Typer(
    name="quarantine",
    add_completion=False,
    no_args_is_help=True,
    help="Show objects in quarantine after a failure, and retry them.",
    epilog=_LIST,
)

_Kind = Annotated[str, typer.Argument(help="The object's kind, as `list` shows it.")]
_Name = Annotated[str, typer.Argument(metavar="[NAMESPACE/]NAME", help="The object's name.")]


class QuarantinedObject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An object in quarantine. `held` is the quota that stays charged for it, by `<flavor>/<resource>`."""

    kind: str
    name: str
    position: str
    since: str
    process: str
    event: str
    error: str
    where: str
    version: str
    stage: str = ""
    cluster_queue: str = ""
    held: dict[str, int] = {}


@app.callback()
def _group() -> None:
    """Show objects in quarantine after a failure, and retry them."""


@app.command("list", epilog=_LIST)
def list_(
    at: options.At = None,
    output: options.OutputOption = Output.TABLE,
    data: options.Data = None,
    cell: options.Cell = None,
    nats: options.Nats = None,
    log: options.LogFile = None,
) -> None:
    """List the objects in quarantine, the oldest first."""
    state = anyio.run(_state, options.SourceOptions(data=data, cell=cell, nats=nats, log=log), at)
    found = entries(state)
    emit(found, output, lambda: _show_all(found))


@app.command("show", epilog=_LIST)
def show(
    kind: _Kind,
    name: _Name,
    at: options.At = None,
    output: options.OutputOption = Output.TABLE,
    data: options.Data = None,
    cell: options.Cell = None,
    nats: options.Nats = None,
    log: options.LogFile = None,
) -> None:
    """Show one of them whole: its record as it was, and what is known of it since."""
    state = anyio.run(_state, options.SourceOptions(data=data, cell=cell, nats=nats, log=log), at)
    record = _found(state, kind, name)
    emit(record, output, lambda: _show(record))


@app.command("retry", epilog=_LIST)
def retry(
    kind: _Kind,
    name: _Name,
    kubeconfig: options.ClusterKubeconfig = None,
    data: options.Data = None,
    cell: options.Cell = None,
    nats: options.Nats = None,
) -> None:
    """Have an object tried again, by an annotation on it that the informer bridge follows."""
    state = anyio.run(_state, options.SourceOptions(data=data, cell=cell, nats=nats), None)
    record = _found(state, kind, name)
    anyio.run(_annotate, record, kubeconfig, data, cell)
    which = shown_object(record.kind, record.key)
    say(f"asked for {which} to be tried again; `headgate quarantine list` shows what has come of it")


async def _state(where: options.SourceOptions, at: str | None) -> State:
    async with open_source(where) as source:
        return await state_at(source, parse_at(at))


def entries(state: State) -> tuple[QuarantinedObject, ...]:
    """The quarantined objects of a state, the oldest first."""
    records = sorted(state.quarantine.values(), key=lambda each: (each.position, each.index, each.kind, each.key))
    return tuple(_entry(each) for each in records)


def _entry(record: QuarantineRecord) -> QuarantinedObject:
    return QuarantinedObject(
        kind=kind_name(record.key) if record.kind == "Job" else record.kind,
        name=shown_name(record.key) if record.kind == "Job" else record.key,
        position=f"{record.position}.{record.index}",
        since=format_time(record.since_ms),
        process=record.process,
        event=record.event,
        error=record.error,
        where=record.where,
        version=record.version,
        stage=record.workload.stage.value if record.workload is not None else "",
        cluster_queue=record.cluster_queue,
        held=record.charged,
    )


def _found(state: State, kind: str, name: str) -> QuarantineRecord:
    for record in state.quarantine.values():
        entry = _entry(record)
        if (entry.kind.lower(), entry.name) == (kind.lower(), name):
            return record
    known = ", ".join(shown_object(each.kind, each.key) for each in state.quarantine.values()) or "nothing"
    raise CliError(f"{kind} {name} is not in quarantine at position {state.position}; there is {known}")


def _show_all(found: tuple[QuarantinedObject, ...]) -> None:
    if not found:
        say("no object is in quarantine")
        return
    rows = [(each.kind, each.name, each.position, each.since, _who(each), each.error) for each in found]
    print_table(("KIND", "NAME", "POSITION", "SINCE", "FAILED", "ERROR"), rows)


def _who(entry: QuarantinedObject) -> str:
    return f"{entry.event} could not be folded" if entry.process == FOLD else entry.process


def _show(record: QuarantineRecord) -> None:
    from rich.markup import escape

    out, entry = console(), _entry(record)
    out.print(f"[bold]{escape(entry.kind)} {escape(entry.name)}[/bold] is in quarantine since {entry.since}")
    out.print(f"  position: {entry.position} ({escape(_who(entry))})")
    out.print(f"  error:    [red]{escape(entry.error)}[/red]")
    out.print(f"  where:    {escape(entry.where)}, Headgate {escape(entry.version)}")
    if entry.stage:
        held = ", ".join(f"{name}={value}" for name, value in entry.held.items()) or "no quota"
        queue = f" of ClusterQueue {escape(entry.cluster_queue)}" if entry.held else ""
        out.print(f"  it was:   {entry.stage}, and holds {escape(held)}{queue}")
    out.print(f"  {escape(retried_by(record))}")


async def _annotate(record: QuarantineRecord, kubeconfig: str | None, data: Path | None, cell: str | None) -> None:
    from headgate.adapters.kubernetes.errors import ApiError
    from headgate.cli.cluster import access_of, open_cluster

    namespace, name = split_key(_entry(record).name)
    body: dict[str, Any] = {"metadata": {"annotations": {RETRY: uuid.uuid4().hex[:8]}}}
    if record.uid:
        body["metadata"]["uid"] = record.uid
    async with open_cluster(access_of(kubeconfig, data, cell)) as objects:
        resource = await objects.by_name(kind_of(JobKey(record.key)).resource if record.kind == "Job" else record.kind)
        try:
            await objects.client.patch(resource, name, body, namespace or None, field_manager="headgate-cli")
        except ApiError as error:
            raise CliError(f"{shown_object(record.kind, record.key)} cannot be annotated: {error}") from error
