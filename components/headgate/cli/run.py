"""`headgate run`: one process of a cell, or the simulated cluster; started by `headgate up`, containers and systemd."""

import importlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from headgate.cli import options
from headgate.cli.broker import flags
from headgate.cli.output import CliError
from headgate.events.base import Producer

app = typer.Typer(add_completion=False)

CLUSTER: Final = "cluster"
WEBHOOK: Final = "webhook"
LEVELS: Final = ("info", "debug")
"""Log levels by the number of -v."""

_PLACING: Final = (Producer.INFORMER_BRIDGE, Producer.SCHEDULER, Producer.BINDER)
"""The processes that read a KubeSchedulerConfiguration."""

_EPILOG = """\b
Examples:
  headgate run scheduler
  NATS_URL=nats://nats:4222 headgate run informer-bridge --config headgate.yaml -v
  headgate run informer-bridge --config kueue-config.yaml --kube-scheduler-config scheduler.yaml
  headgate run cluster --host 0.0.0.0 --port 8443 --kubeconfig /shared/kubeconfig --data /var/lib/headgate
  headgate run webhook --config headgate.yaml --config kueue-config.yaml
Processes: informer-bridge, queue-manager, scheduler, binder, ungater, snapshotter; and webhook, which needs no broker.
Their settings: a YAML file, and HEADGATE_<SECTION>_<KEY> in the environment.
"""


# Large: the options, a few lines each with its help.
@app.command(epilog=_EPILOG)
def run(
    process: Annotated[str, typer.Argument(metavar="PROCESS|webhook|cluster", help="Which one.")],
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="The settings (else HEADGATE_CONFIG); informer-bridge, webhook, cluster: also Kueue's Configuration.",
        ),
    ] = None,
    kube_scheduler_config: Annotated[
        str | None,
        typer.Option(
            "--kube-scheduler-config",
            metavar="FILE|none",
            help="informer-bridge, scheduler, binder: place pods by this KubeSchedulerConfiguration; none: no pods.",
        ),
    ] = None,
    nats: options.Nats = None,
    verbose: Annotated[int, typer.Option("-v", "--verbose", count=True, help="Log more.")] = 0,
    host: Annotated[str, typer.Option(help="cluster: where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="cluster: 0 takes a free one.")] = 0,
    kubeconfig: Annotated[
        Path | None, typer.Option(metavar="FILE", help="cluster: write a kubeconfig for it here.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="cluster: keep its objects here; left out, it forgets them.")
    ] = None,
    address_file: Annotated[Path | None, typer.Option(metavar="FILE", help="cluster: write its URL here.")] = None,
    public_url: Annotated[str, typer.Option(metavar="URL", help="cluster: how clients reach it.")] = "",
    default_scheduler: Annotated[
        bool,
        typer.Option(
            "--default-scheduler", help="cluster: place pods of the default scheduler, for Headgate does not."
        ),
    ] = False,
) -> None:
    """Run one process until it is told to stop. Several of one kind stand by for each other."""
    names = [producer.value for producer in Producer]
    if process == CLUSTER:
        _become_cluster(host, port, data, kubeconfig, address_file, public_url, default_scheduler, config or [])
    if process not in (*names, WEBHOOK):
        raise CliError(f"there is no process {process!r}: there is {', '.join(names)}, {WEBHOOK} and {CLUSTER}")
    if data or kubeconfig or address_file or public_url or port or default_scheduler:
        raise CliError(
            "--host, --port, --data, --kubeconfig, --address-file, --public-url and --default-scheduler are for "
            "`headgate run cluster`"
        )
    raise typer.Exit(_run_process(process, config or [], kube_scheduler_config, nats, verbose))


def _run_process(name: str, config: list[str], placing: str | None, nats: str | None, verbose: int) -> int:
    import msgspec

    from headgate.processes.entry import run_process
    from headgate.processes.runtime.configuration_files import load_configuration, load_scheduler_document, sort_files
    from headgate.processes.runtime.settings import Flag, load

    files = sort_files(config)
    given = flags(nats)
    if placing is not None:
        if name not in _PLACING:
            raise CliError(
                f"--kube-scheduler-config {placing}: the KubeSchedulerConfiguration comes to the {name} through the "
                f"log: give it to `headgate run {Producer.INFORMER_BRIDGE.value}`"
            )
        given.append(Flag("--kube-scheduler-config", ("placement", "configuration"), placing))
    settings = load(files.settings, flags=given)
    if files.configuration is not None:
        if name not in (Producer.INFORMER_BRIDGE, WEBHOOK):
            raise CliError(
                f"--config {files.configuration}: Kueue's Configuration comes to the {name} through the log: "
                f"give it to `headgate run {Producer.INFORMER_BRIDGE.value}`"
            )
        bridge = msgspec.structs.replace(settings.bridge, configuration=files.configuration)
        settings = msgspec.structs.replace(settings, bridge=bridge)
    if name in (Producer.INFORMER_BRIDGE, WEBHOOK) and settings.bridge.configuration:
        load_configuration(settings.bridge.configuration)  # report mistakes before anything starts
    if name in _PLACING and settings.placement.configuration:
        load_scheduler_document(settings.placement.configuration)
    if verbose:
        level = LEVELS[min(verbose, len(LEVELS) - 1)]
        settings = msgspec.structs.replace(settings, log=msgspec.structs.replace(settings.log, level=level))
    if name == WEBHOOK:
        from headgate.processes.webhook.process import run as run_webhook

        return run_webhook(settings)
    return run_process(name, settings, routes=_read_side() if name == Producer.SNAPSHOTTER else None)


def _read_side() -> Any:
    """The snapshotter's read side; by name, because the command line must not import the web: they are one layer."""
    return importlib.import_module("headgate.web.routes").add_routes


def _become_cluster(
    host: str,
    port: int,
    data: Path | None,
    kubeconfig: Path | None,
    address_file: Path | None,
    public_url: str,
    default_scheduler: bool,
    config: list[str],
) -> None:
    """
    Become the simulated cluster.

    It belongs to the simulated world, which stands above the command line, so it is started as a program of its own.
    """
    from headgate.processes.runtime.configuration_files import sort_files

    configuration = sort_files(config).configuration
    args = ["--host", host, "--port", str(port)]
    args += ["--data", str(data)] if data else []
    args += ["--kubeconfig", str(kubeconfig)] if kubeconfig else []
    args += ["--address-file", str(address_file)] if address_file else []
    args += ["--public-url", public_url] if public_url else []
    args += ["--default-scheduler"] if default_scheduler else []
    args += ["--configuration", configuration] if configuration else []
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "headgate.testing.cluster.serve", *args])  # noqa: S606 - ourselves
