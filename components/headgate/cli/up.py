"""`headgate up`: a whole cell on this machine, from one command."""

import re
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import anyio
import typer

from headgate.adapters.jetstream.options import without_secrets
from headgate.cli.cell import ROOT
from headgate.cli.output import FAILED, CliError, console, say
from headgate.cli.supervisor import ProcessReport, Supervisor, UpOptions, until_signal
from headgate.events.subjects import check_cell

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headgate.processes.runtime.configuration_files import ConfigFiles

app = typer.Typer(add_completion=False)

REFRESH_S = 0.5
CHECK_TIMEOUT_S = 5.0
"""How long to wait for a cluster's list of served resources before starting without it."""
_INTERVAL = re.compile(r"always|([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+")
"""As nats-server reads it."""
NEWS_SHOWN = 6
"""How many restarts and other messages are shown below the table."""
_EPILOG = """\b
Examples:
  headgate up                                       broker, simulated cluster and processes, in ./.headgate/main
  headgate up -f queues.yaml -f nodes/              and apply these manifests
  headgate up --config kueue-config.yaml            with a Configuration as Kueue reads it
  headgate up --kubeconfig ~/.kube/config           beside a real cluster
  headgate up --kube-scheduler-config profiles.yaml place the pods of these profiles
  headgate up --nats nats://nats.example:4222       on a broker of yours
Ctrl-C takes everything down. Started again, it goes on from its log, and the simulated cluster from its objects
(<dir>/cluster; to begin anew, remove the whole directory, for log and objects belong together).
"""


# Large: the options of the command with their help, then their checks.
@app.command(epilog=_EPILOG)
def up(
    cell: Annotated[
        str, typer.Option("--cell", metavar="NAME", help="The cell's name.", envvar="HEADGATE_CELL")
    ] = "main",
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Its directory: ./.headgate/<cell> if left out.")
    ] = None,
    nats: Annotated[
        str | None,
        typer.Option(
            "--nats", metavar="URL", help="A broker of yours, in place of one that is started.", envvar="NATS_URL"
        ),
    ] = None,
    kubeconfig: Annotated[
        str, typer.Option("--kubeconfig", metavar="FILE", help="A cluster of yours, in place of a simulated one.")
    ] = "",
    filename: Annotated[
        list[str] | None, typer.Option("-f", "--filename", metavar="FILE|DIR", help="Manifests to apply once it is up.")
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="FILE", help="Kueue's Configuration, or the processes' settings, or both."),
    ] = None,
    placement: Annotated[
        str,
        typer.Option(
            "--kube-scheduler-config",
            metavar="FILE|none",
            help="Place the pods of its profiles. Left out: all pods of the simulated cluster, none of another one.",
        ),
    ] = "",
    sync_interval: Annotated[
        str,
        typer.Option(
            "--sync-interval", metavar="always|100ms|2m", help="How often the started broker syncs its store."
        ),
    ] = "",
    verbose: Annotated[int, typer.Option("-v", "--verbose", count=True, help="More in the processes' logs.")] = 0,
) -> None:
    """Start everything: broker, simulated cluster, the six processes; keep it running until Ctrl-C."""
    try:
        check_cell(cell)
    except ValueError as error:
        raise CliError(str(error)) from error
    if sync_interval and not _INTERVAL.fullmatch(sync_interval):
        raise CliError(f"--sync-interval {sync_interval}: write `always` or a time, for example 100ms, 10s, 2m")
    if kubeconfig and not Path(kubeconfig).expanduser().exists():
        raise CliError(f"--kubeconfig {kubeconfig}: there is no such file")
    manifests = filename or []
    if manifests:
        from headgate.cli.manifests import read_manifests

        read_manifests(manifests)  # report a typing error before anything starts
    files = _check_configs(config or [])
    if placement:
        from headgate.processes.runtime.configuration_files import NO_PLACEMENT, load_scheduler_document

        load_scheduler_document(placement)
        placement = placement if placement == NO_PLACEMENT else str(Path(placement).resolve())
    options = UpOptions(
        data=data or ROOT / cell,
        cell=cell,
        nats_url=nats or "",
        nats=_nats(nats),
        kubeconfig=str(Path(kubeconfig).expanduser().resolve()) if kubeconfig else "",
        config=str(Path(files.settings).resolve()) if files.settings else "",
        configuration=str(Path(files.configuration).resolve()) if files.configuration else "",
        placement=placement,
        sync_interval=sync_interval,
        verbose=verbose,
    )
    try:
        anyio.run(_up, options, manifests, backend_options={"use_uvloop": True})
    except KeyboardInterrupt:
        say(f"stopped; `headgate up` goes on from {options.data}")


def _nats(url: str | None) -> dict[str, str | bool]:
    """The settings of an external broker from the command line and the environment. Raises SettingsError."""
    from headgate.cli.broker import flags
    from headgate.processes.runtime.settings import NatsSettings, load

    if not url:
        return {}
    mine, plain = load(flags=flags(url)).nats, NatsSettings()
    fields = (each for each in mine.options("x", "x").__struct_fields__ if hasattr(plain, each))
    return {each: getattr(mine, each) for each in fields if getattr(mine, each) != getattr(plain, each)}


def _check_configs(config: list[str]) -> "ConfigFiles":
    """The files of `--config`, checked for mistakes. Raises SettingsError."""
    from headgate.processes.runtime.configuration_files import ConfigFiles, load_configuration, sort_files

    if not config:
        return ConfigFiles()
    from headgate.processes.runtime.settings import load

    files = sort_files(config)
    settings = load(files.settings)
    configuration = files.configuration or settings.bridge.configuration
    if configuration:
        load_configuration(configuration)
    return ConfigFiles(settings=files.settings, configuration=configuration or None)


async def _up(options: UpOptions, manifests: list[str]) -> None:
    news: deque[str] = deque(maxlen=NEWS_SHOWN)
    out = console(stderr=True)

    def told(text: str) -> None:
        news.append(text)
        if not out.is_terminal:
            say(text)

    if options.kubeconfig:
        await _check_crds(options.kubeconfig, told)
    async with until_signal(), Supervisor(options, told) as cell:
        await cell.wait_ready()
        if manifests:
            await apply_all(cell.kubeconfig, manifests)
        greet(cell)
        if out.is_terminal:
            await _show(cell, news)
        else:
            await _wait(cell)


async def _check_crds(kubeconfig: str, told: Callable[[str], None]) -> None:
    """
    Nothing starts on a cluster that lacks Kueue's API: every process would only wait for it.

    If a cluster does not answer, the processes wait by themselves.

    Raises CliError.
    """
    from headgate.adapters.kubernetes.crds.install import missing_crds
    from headgate.adapters.kubernetes.errors import ApiError, TransportError
    from headgate.adapters.kubernetes.kubeconfig import resolve
    from headgate.cli.cluster import open_cluster

    async with open_cluster(resolve(kubeconfig=kubeconfig)) as objects:
        try:
            with anyio.fail_after(CHECK_TIMEOUT_S):
                missing = await missing_crds(objects.client)
        except (ApiError, TransportError, TimeoutError) as error:
            told(f"cannot read yet whether the API server serves Kueue's API: {error}")
            return
    if missing:
        raise CliError(
            f"{kubeconfig}: the API server does not serve {', '.join(missing)}: "
            f"install them with `headgate crds install --kubeconfig {kubeconfig}`",
            FAILED,
        )


async def apply_all(kubeconfig: str, manifests: list[str]) -> None:
    """Apply manifests to a cluster. Raises CliError at the first that is refused."""
    from headgate.adapters.kubernetes.kubeconfig import resolve
    from headgate.cli.cluster import open_cluster
    from headgate.cli.manifests import read_manifests
    from headgate.cli.objects import apply_one

    async with open_cluster(resolve(kubeconfig=kubeconfig)) as objects:
        for manifest in read_manifests(manifests):
            done = await apply_one(objects, manifest, None)
            if done.error:
                raise CliError(f"{done.origin}: {done.object}: {done.error}", FAILED)


def greet(cell: Supervisor) -> None:
    """How to use what is running."""
    kubeconfig = Path(cell.kubeconfig)
    shown = kubeconfig.relative_to(Path.cwd()) if kubeconfig.is_relative_to(Path.cwd()) else kubeconfig
    say(f"cell {cell.options.cell} is up: NATS at {without_secrets(cell.nats_url)}, data in {cell.data}")
    say(f"  kubectl --kubeconfig {shown} get clusterqueues     (or: source {cell.data}/env)")
    say("  headgate apply -f FILE, headgate queue status, headgate explain JOB, headgate events --follow")
    page = cell.info().processes.get("snapshotter")
    if page is not None and page.address:
        say(f"  the page: {page.address}/")
    say("  Ctrl-C takes everything down")


async def _wait(cell: Supervisor) -> None:
    """Without a terminal: until a signal, or until a process has given up."""
    while True:
        await anyio.sleep(REFRESH_S)
        cell.fail_if_given_up()


async def _show(cell: Supervisor, news: deque[str]) -> None:
    from rich.live import Live

    with Live(console=console(stderr=True), auto_refresh=False, transient=True) as live:
        while True:
            live.update(status_table(cell, await cell.reports(), list(news)), refresh=True)
            cell.fail_if_given_up()
            await anyio.sleep(REFRESH_S)


def status_table(cell: Supervisor, reports: list[ProcessReport], news: list[str]) -> "RenderableType":
    """The processes in a table, and the latest news below."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("PROCESS", "STATE", "PID", "RESTARTS", "POSITION", "BEHIND", ""):
        table.add_column(column, justify="right" if column in ("PID", "RESTARTS", "POSITION", "BEHIND") else "left")
    if cell.nats is not None:
        state = "running" if cell.nats.pid else "waiting"
        table.add_row("nats", Text(state, "green"), str(cell.nats.pid or "-"), str(cell.nats_restarts), "", "", "")
    shown = {report.name for report in reports}
    for name, child in cell.children.items():
        if name not in shown:
            table.add_row(
                name, Text(child.state.value, "green"), str(child.pid or "-"), str(child.restarts), "", "", ""
            )
    for each in reports:
        style = "green" if each.ready else "yellow"
        behind = str(max(0, each.log_end - each.position))
        detail = Text("" if each.ready else each.detail, "yellow")
        table.add_row(
            each.name, Text(each.phase or each.state, style), str(each.pid or "-"), str(each.restarts),
            str(each.position), behind, detail,
        )  # fmt: skip
    return Group(table, *(Text(each, "dim") for each in news))
