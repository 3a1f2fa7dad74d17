"""`headgate crds`: Kueue's CustomResourceDefinitions, installed and compared."""

import enum
from pathlib import Path
from typing import Annotated

import anyio
import typer

from headgate.adapters.kubernetes.crds.install import Compared, Installed, InstallOutcome, compare_installed, install
from headgate.adapters.kubernetes.crds.kinds import KUEUE_KINDS
from headgate.adapters.kubernetes.crds.migrate import Migrated, migrate
from headgate.adapters.kubernetes.crds.render import Conversion
from headgate.adapters.kubernetes.errors import KubeConfigurationError, KubernetesError
from headgate.cli import options
from headgate.cli.admission import admit_by
from headgate.cli.cluster import access_of, open_cluster
from headgate.cli.output import FAILED, OK, WRONG_USAGE, CliError, Output, emit, say
from headgate.processes.webhook.installing import Way

_EPILOG = """\b
Examples:
  headgate crds install --kubeconfig ~/.kube/config
  headgate crds diff
"""


class Convert(enum.Enum):
    """How the API server gets from one version to the other."""

    WEBHOOK = "webhook"
    NONE = "none"


_SERVICE = f"{Conversion().namespace}/{Conversion().service}"

app = typer.Typer(
    name="crds",
    add_completion=False,
    no_args_is_help=True,
    help="Kueue's CustomResourceDefinitions in a cluster: install them, or compare them with ours.",
    epilog=_EPILOG,
)

_INSTALL = """\b
Examples:
  headgate crds install --kubeconfig ~/.kube/config
  headgate crds install --conversion webhook        v1beta1 with its own spelling, converted by `headgate run webhook`
  headgate crds install --dry-run                   let the server check everything and keep nothing
  headgate crds install --admission webhook         Kueue's defaults and refusals by `headgate run webhook`
  headgate crds install --admission policy --configuration kueue-config.yaml
                                                    the same by admission policies (Kubernetes 1.36): no webhook
Without --admission nothing of it is changed; --admission off removes both.
Without a conversion (the default) v1beta1 has the fields of v1beta2, and what it spells otherwise is refused with the
name of the field to use. Without the option, definitions keep the conversion that they have.
Definitions that Kueue or a chart installed are checked and left alone; --force replaces them.
Exit code: 0 the cluster serves what Headgate needs, 1 it does not.
"""
_MIGRATE = """\b
Examples:
  headgate crds migrate --dry-run                   which kinds may have objects in another version, and how many
  headgate crds migrate
Needed before a version or a conversion goes away. The conversion has to work meanwhile. It may be interrupted and run
again; objects are written as they are, by empty patches.
Exit code: 0 everything is stored in the storage version, 1 it is not.
"""
_DIFF = """\b
Examples:
  headgate crds diff --kubeconfig ~/.kube/config
Each line is what ours says and what the server's says; - is nothing. Descriptions are not compared.
Exit code: 0 no difference, 1 differences, 2 they could not be compared.
"""


# Large: one parameter for each option.
@app.command("install", epilog=_INSTALL)
def install_(
    kubeconfig: options.ClusterKubeconfig = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check, and change nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace definitions that others installed.")] = False,
    conversion: Annotated[
        Convert | None, typer.Option("--conversion", help="Whether a webhook converts v1beta1 and v1beta2.")
    ] = None,
    service: Annotated[
        str, typer.Option("--service", metavar="NAMESPACE/NAME", help="The Service of the webhook.")
    ] = _SERVICE,
    admission: Annotated[
        Way | None, typer.Option("--admission", help="Who applies Kueue's rules of defaulting and validation.")
    ] = None,
    configuration: Annotated[
        Path | None, typer.Option("--configuration", metavar="FILE", help="Kueue's Configuration, for policies.")
    ] = None,
    output: options.OutputOption = Output.TABLE,
    data: options.ClusterData = None,
    cell: options.ClusterCell = None,
) -> None:
    """Install the definitions of Kueue's kinds, or bring them up to date."""
    namespace, name = service_of(service)
    done: list[Installed] = []

    async def act() -> None:
        async with open_cluster(access_of(kubeconfig, data, cell)) as objects:
            convert = None if conversion is None else conversion is Convert.WEBHOOK
            webhook = Conversion(namespace=namespace, service=name)
            async for each in install(objects.client, convert=convert, webhook=webhook, dry_run=dry_run, force=force):
                done.append(each)
                if output is Output.TABLE:
                    _print(each, dry_run=dry_run)
            await admit_by(objects.client, admission, service=(namespace, name), file=configuration, dry_run=dry_run)

    try:
        anyio.run(act)
    except KubeConfigurationError:
        raise
    except KubernetesError as error:
        if output is not Output.TABLE:
            emit(done, output, lambda: None)
        raise CliError(f"{error} ({_left(done, dry_run=dry_run)})", FAILED) from error
    if output is not Output.TABLE:
        emit(done, output, lambda: None)
    raise typer.Exit(OK if all(each.usable for each in done) else FAILED)


def service_of(service: str) -> tuple[str, str]:
    """The namespace and the name of the webhook's Service, from its flag. Raises CliError."""
    namespace, _, name = service.partition("/")
    if not namespace or not name:
        raise CliError(f"--service {service}: write NAMESPACE/NAME, e.g. {_SERVICE}", WRONG_USAGE)
    return namespace, name


@app.command("migrate", epilog=_MIGRATE)
def migrate_(
    kubeconfig: options.ClusterKubeconfig = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the objects, and write nothing.")] = False,
    output: options.OutputOption = Output.TABLE,
    data: options.ClusterData = None,
    cell: options.ClusterCell = None,
) -> None:
    """Store every object in the storage version, so that no other version is needed to read any."""
    done: list[Migrated] = []

    async def act() -> None:
        async with open_cluster(access_of(kubeconfig, data, cell)) as objects:
            async for each in migrate(objects.client, dry_run=dry_run):
                done.append(each)
                if output is Output.TABLE:
                    print(_migrated(each, dry_run=dry_run))

    try:
        anyio.run(act)
    except KubeConfigurationError:
        raise
    except KubernetesError as error:
        raise CliError(f"{error} (done: {', '.join(each.name for each in done) or 'nothing'})", FAILED) from error
    finally:
        if output is not Output.TABLE:
            emit(done, output, lambda: None)


def _migrated(done: Migrated, *, dry_run: bool) -> str:
    if not done.is_needed:
        return f"customresourcedefinition/{done.name} unchanged: everything is stored as {done.version}"
    objects = f"{done.objects} object" + "s" * (done.objects != 1)
    what = f"would be migrated: {objects}" if dry_run else f"migrated: {objects} stored as {done.version}"
    return f"customresourcedefinition/{done.name} {what} (before: {', '.join(done.stored)})"


def _print(done: Installed, *, dry_run: bool) -> None:
    state = done.state.value
    if dry_run and done.state not in (InstallOutcome.UNCHANGED, InstallOutcome.LEFT):
        state = f"would be {state}"
    line = f"customresourcedefinition/{done.name} {state}{': ' + done.detail if done.detail else ''}"
    if done.usable:
        print(line)
    else:
        say(f"headgate: {line}")


def _left(done: list[Installed], *, dry_run: bool) -> str:
    """What was done before an error, and what was not."""
    names = [kind.plural for kind in KUEUE_KINDS]
    before, after = names[: len(done)], names[len(done) :]
    if dry_run:
        return "nothing was changed"
    return f"done: {', '.join(before) or 'nothing'}; not done: {', '.join(after)}"


@app.command(epilog=_DIFF)
def diff(
    kubeconfig: options.ClusterKubeconfig = None,
    output: options.OutputOption = Output.TABLE,
    data: options.ClusterData = None,
    cell: options.ClusterCell = None,
) -> None:
    """Show what the cluster's definitions say otherwise than ours."""

    async def act() -> list[Compared]:
        async with open_cluster(access_of(kubeconfig, data, cell)) as objects:
            return await compare_installed(objects.client)

    try:
        compared = anyio.run(act)
    except KubernetesError as error:
        raise CliError(str(error), WRONG_USAGE) from error
    differing = [each for each in compared if not each.there or each.differences]
    if output is Output.TABLE:
        for each in differing:
            if not each.there:
                print(f"{each.name}: not installed")
            for one in each.differences:
                print(f"{each.name}: {one.path}: {one.ours} / {one.theirs}")
    else:
        emit(compared, output, lambda: None)
    raise typer.Exit(FAILED if differing else OK)
