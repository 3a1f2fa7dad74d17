"""`headgate takeover` and `headgate handback`: from Kueue to Headgate in a running cluster, and back."""

import datetime as dt
from pathlib import Path
from typing import Annotated

import anyio
import typer

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.crds.install import Installed, install
from headgate.adapters.kubernetes.crds.render import Conversion
from headgate.adapters.kubernetes.kueue_installation import (
    Step,
    detach,
    find_installation,
    forget,
    headgate_runs,
    kueue_runs,
    reattach,
    recorded,
)
from headgate.adapters.kubernetes.leftovers import clean
from headgate.cli import options
from headgate.cli.admission import admit_by
from headgate.cli.cluster import access_of, open_cluster
from headgate.cli.crds import Convert, service_of
from headgate.cli.output import FAILED, CliError, say
from headgate.processes.webhook.installing import Way

app = typer.Typer(add_completion=False)

_SERVICE = f"{Conversion().namespace}/{Conversion().service}"

_TAKEOVER = """\b
Examples:
  kubectl -n kueue-system scale deployment kueue-controller-manager --replicas=0
  headgate takeover --dry-run
  headgate takeover                                 Kueue's rules and v1beta1 by `headgate run webhook`
  headgate takeover --admission policy --conversion none --configuration kueue-config.yaml
                                                    no webhook at all: admission policies; v1beta1 is not served
Objects, definitions and finalizers stay; no pod is touched. What leads to Kueue (webhook configurations, conversions,
APIServices) is recorded in the ConfigMap headgate-takeover in Kueue's namespace and taken away; headgate handback puts
it back. Run it before Headgate's processes are started. It may be interrupted and run again.
Exit code: 0 nothing leads to Kueue any more, 1 Kueue still runs, or its definitions cannot be used.
"""
_HANDBACK = """\b
Examples:
  kubectl -n headgate-system scale deployment --replicas=0 -l 'app.kubernetes.io/component!=webhook'
  headgate handback --dry-run
  headgate handback
  kubectl -n kueue-system scale deployment kueue-controller-manager --replicas=1
Until Kueue runs, its webhooks refuse new objects. It may be interrupted and run again.
Exit code: 0 everything is as before the takeover, 1 Headgate still runs, or nothing is recorded.
"""

_Dry = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")]


@app.command(epilog=_TAKEOVER)
def takeover(
    admission: Annotated[
        Way, typer.Option("--admission", help="Who applies Kueue's rules of defaulting and validation.")
    ] = Way.WEBHOOK,
    conversion: Annotated[
        Convert, typer.Option("--conversion", help="Whether our webhook converts v1beta1, or it is not served.")
    ] = Convert.WEBHOOK,
    service: Annotated[
        str, typer.Option("--service", metavar="NAMESPACE/NAME", help="The Service of the webhook.")
    ] = _SERVICE,
    configuration: Annotated[
        Path | None, typer.Option("--configuration", metavar="FILE", help="Kueue's Configuration, for policies.")
    ] = None,
    dry_run: _Dry = False,
    kubeconfig: options.ClusterKubeconfig = None,
    data: options.ClusterData = None,
    cell: options.ClusterCell = None,
) -> None:
    """Replace a stopped Kueue's webhooks and conversions by ours, so that Headgate can run in its place."""
    namespace, name = service_of(service)
    webhook = Conversion(namespace=namespace, service=name) if conversion is Convert.WEBHOOK else None

    async def act() -> None:
        async with open_cluster(access_of(kubeconfig, data, cell)) as objects:
            client = objects.client
            found = await find_installation(client)
            if running := await kueue_runs(client, found.namespace, dt.datetime.now(dt.UTC)):
                raise CliError(f"Kueue still runs: {running}; then run this again. Nothing was changed", FAILED)
            await _require_usable(client)
            # Ours first: nothing passes unseen between the two.
            await admit_by(client, admission, service=(namespace, name), file=configuration, dry_run=dry_run)
            async for step in detach(client, found, webhook, dry_run=dry_run):
                _print(step, dry_run=dry_run)
            if not found.registrations:
                say("nothing leads to Kueue" + (" any more" if await recorded(client) else ""))

    anyio.run(act)


@app.command(epilog=_HANDBACK)
def handback(
    dry_run: _Dry = False,
    kubeconfig: options.ClusterKubeconfig = None,
    data: options.ClusterData = None,
    cell: options.ClusterCell = None,
) -> None:
    """Remove what Headgate has registered and written, and put Kueue's webhooks and conversions back."""

    async def act() -> bool:
        async with open_cluster(access_of(kubeconfig, data, cell)) as objects:
            client = objects.client
            if running := await headgate_runs(client):
                raise CliError(f"Headgate still runs: {running}; then run this again. Nothing was changed", FAILED)
            found = await recorded(client)
            # Before Kueue's webhooks are back, which refuse every change until it runs.
            async for kind, name in clean(client, dry_run=dry_run):
                _print(Step(kind=kind, name=name, done="cleaned"), dry_run=dry_run)
            if found is not None:
                async for step in reattach(client, found, dry_run=dry_run):
                    _print(step, dry_run=dry_run)
            await admit_by(client, Way.OFF, service=service_of(_SERVICE), file=None, dry_run=dry_run)
            if found is not None:
                _print(await forget(client, found, dry_run=dry_run), dry_run=dry_run)
            return found is not None

    if not anyio.run(act):
        remedy = "apply the manifests or the chart of your Kueue before you start it"
        raise CliError(f"no takeover is recorded in this cluster, so nothing of Kueue was put back: {remedy}", FAILED)


async def _require_usable(client: KubeClient) -> None:
    """Raises CliError where Headgate could not work with the definitions that are installed."""
    checked: list[Installed] = [each async for each in install(client, dry_run=True)]
    unusable = [f"{each.name}: {each.detail}" for each in checked if not each.usable]
    if unusable:
        raise CliError(f"{'; '.join(unusable)}. Nothing was changed", FAILED)


def _print(step: Step, *, dry_run: bool) -> None:
    done = f"would be: {step.done}" if dry_run else step.done
    say(f"{step.kind.lower()}/{step.name} {done}")
