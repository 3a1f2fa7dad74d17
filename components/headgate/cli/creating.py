"""`headgate create`: ClusterQueues, LocalQueues and ResourceFlavors from flags, as Kueue's kubectl plugin does it."""

import enum
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import anyio
import msgspec
import typer

from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.resources import RESOURCES
from headgate.cli import completion, options
from headgate.cli.cluster import ClusterObjects
from headgate.cli.objects import FIELD_MANAGER, check_names, with_cluster
from headgate.cli.output import FAILED, WRONG_USAGE, CliError, Output, emit
from headgate.core.api.conversion import V1BETA2

JsonObject = dict[str, Any]

_EPILOG = """\b
Examples:
  headgate create resourceflavor spot --node-labels zone=a --node-taints spot=true:NoSchedule
  headgate create clusterqueue vision --cohort all --nominal-quota 'spot:cpu=9;memory=36Gi' --borrowing-limit spot:cpu=1
  headgate create localqueue main -n team-a -c vision
"""

app = typer.Typer(
    name="create", add_completion=False, no_args_is_help=True, help="Create a queue or a flavor.", epilog=_EPILOG
)

_Name = Annotated[str, typer.Argument(help="Its name.")]
_Dry = Annotated[bool, typer.Option("--dry-run", help="Let the server check it, and keep nothing.")]
_QUOTA = "FLAVOR:RESOURCE=N[;RESOURCE=N]"


class Strategy(enum.Enum):
    """Queueing strategies."""

    STRICT = "StrictFIFO"
    BEST_EFFORT = "BestEffortFIFO"


class Reclaim(enum.Enum):
    """Policies of preemption in a cohort."""

    NEVER = "Never"
    LOWER = "LowerPriority"
    ANY = "Any"


class Within(enum.Enum):
    """Policies of preemption in a ClusterQueue."""

    NEVER = "Never"
    LOWER = "LowerPriority"
    LOWER_OR_NEWER = "LowerOrNewerEqualPriority"


@app.command()
def clusterqueue(
    name: _Name,
    cohort: Annotated[str, typer.Option("--cohort", metavar="NAME", help="Its cohort.")] = "",
    strategy: Annotated[Strategy | None, typer.Option("--queuing-strategy", help="The order of workloads.")] = None,
    selector: Annotated[
        list[str] | None, typer.Option("--namespace-selector", metavar="KEY=VALUE", help="Labels of its namespaces.")
    ] = None,
    reclaim: Annotated[
        Reclaim | None, typer.Option("--reclaim-within-cohort", help="Whom it may preempt there.")
    ] = None,
    within: Annotated[
        Within | None, typer.Option("--preemption-within-cluster-queue", help="Whom it may preempt in itself.")
    ] = None,
    nominal: Annotated[list[str] | None, typer.Option("--nominal-quota", metavar=_QUOTA, help="Its quota.")] = None,
    borrowing: Annotated[
        list[str] | None, typer.Option("--borrowing-limit", metavar=_QUOTA, help="How much it may borrow.")
    ] = None,
    lending: Annotated[
        list[str] | None, typer.Option("--lending-limit", metavar=_QUOTA, help="How much it may lend.")
    ] = None,
    dry_run: _Dry = False,
    output: options.OutputOption = Output.TABLE,
    kubeconfig: options.ClusterKubeconfig = None,
    data: options.ClusterData = None,
    cell: options.ClusterCell = None,
) -> None:
    """Create a ClusterQueue. Without a selector, workloads of all namespaces may use it."""
    preemption = {
        **({"reclaimWithinCohort": reclaim.value} if reclaim else {}),
        **({"withinClusterQueue": within.value} if within else {}),
    }
    groups = resource_groups(nominal or (), borrowing or (), lending or ())
    spec = {
        **({"cohortName": cohort} if cohort else {}),
        **({"queueingStrategy": strategy.value} if strategy else {}),
        "namespaceSelector": {"matchLabels": _pairs("--namespace-selector", selector)} if selector else {},
        **({"preemption": preemption} if preemption else {}),
        **({"resourceGroups": groups} if groups else {}),
    }
    _create("ClusterQueue", name, None, spec, (kubeconfig, data, cell), dry_run=dry_run, output=output)


@app.command()
def localqueue(
    name: _Name,
    cluster_queue: Annotated[
        str,
        typer.Option(
            "-c", "--clusterqueue", metavar="NAME", help="Its ClusterQueue.", autocompletion=completion.cluster_queues
        ),
    ],
    namespace: Annotated[
        str | None,
        typer.Option("-n", "--namespace", metavar="NS", help="The namespace.", autocompletion=completion.namespaces),
    ] = None,
    ignore: Annotated[
        bool, typer.Option("-i", "--ignore-unknown-cq", help="Create it without its ClusterQueue too.")
    ] = False,
    dry_run: _Dry = False,
    output: options.OutputOption = Output.TABLE,
    kubeconfig: options.ClusterKubeconfig = None,
    data: options.ClusterData = None,
    cell: options.ClusterCell = None,
) -> None:
    """Create a LocalQueue of a ClusterQueue that exists."""
    spec = {"clusterQueue": cluster_queue}
    needed = None if ignore else cluster_queue
    where = (kubeconfig, data, cell)
    _create("LocalQueue", name, namespace, spec, where, dry_run=dry_run, output=output, needed=needed)


@app.command()
def resourceflavor(
    name: _Name,
    labels: Annotated[
        list[str] | None, typer.Option("--node-labels", metavar="KEY=VALUE", help="Labels of its nodes.")
    ] = None,
    taints: Annotated[
        list[str] | None, typer.Option("--node-taints", metavar="KEY=VALUE:EFFECT", help="Taints of its nodes.")
    ] = None,
    tolerations: Annotated[
        list[str] | None,
        typer.Option("--tolerations", metavar="KEY[=VALUE]:EFFECT", help="Tolerations that admitted pods get."),
    ] = None,
    dry_run: _Dry = False,
    output: options.OutputOption = Output.TABLE,
    kubeconfig: options.ClusterKubeconfig = None,
    data: options.ClusterData = None,
    cell: options.ClusterCell = None,
) -> None:
    """Create a ResourceFlavor."""
    spec: JsonObject = {}
    if labels:
        spec["nodeLabels"] = _pairs("--node-labels", labels)
    if taints:
        spec["nodeTaints"] = [_taint("--node-taints", each) for each in _split(taints)]
    if tolerations:
        spec["tolerations"] = [_toleration(each) for each in _split(tolerations)]
    _create("ResourceFlavor", name, None, spec, (kubeconfig, data, cell), dry_run=dry_run, output=output)


# --- flags -----------------------------------------------------------------------------------------------------------


def resource_groups(nominal: Iterable[str], borrowing: Iterable[str], lending: Iterable[str]) -> list[JsonObject]:
    """
    The resource groups of quota flags: flavors with the same resources are in one group.

    Raises CliError for a flag that is not of the form, and for a limit of something that has no quota.
    """
    quotas: dict[str, dict[str, JsonObject]] = {}
    for flavor, resource, value in _quotas("--nominal-quota", nominal):
        quotas.setdefault(flavor, {})[resource] = {"name": resource, "nominalQuota": value}
    for flag, field, texts in (
        ("--borrowing-limit", "borrowingLimit", borrowing),
        ("--lending-limit", "lendingLimit", lending),
    ):
        for flavor, resource, value in _quotas(flag, texts):
            if resource not in quotas.get(flavor, {}):
                raise CliError(f"{flag} {flavor}:{resource}: it has no --nominal-quota", WRONG_USAGE)
            quotas[flavor][resource][field] = value
    groups: dict[tuple[str, ...], list[JsonObject]] = {}
    for flavor, resources in quotas.items():
        groups.setdefault(tuple(resources), []).append({"name": flavor, "resources": list(resources.values())})
    return [{"coveredResources": list(covered), "flavors": flavors} for covered, flavors in groups.items()]


def _quotas(flag: str, texts: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    for text in _split(texts):
        flavor, _, rest = text.partition(":")
        for part in rest.split(";"):
            resource, _, value = part.partition("=")
            if not (flavor and resource and value):
                raise CliError(f"{flag} {text}: write {_QUOTA}, e.g. spot:cpu=9;memory=36Gi", WRONG_USAGE)
            yield flavor, resource, value


def _split(texts: Iterable[str]) -> Iterator[str]:
    """Values of a flag that may be repeated, or hold several with commas."""
    return (part.strip() for text in texts for part in text.split(",") if part.strip())


def _pairs(flag: str, texts: Iterable[str]) -> dict[str, str]:
    found = {}
    for text in _split(texts):
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise CliError(f"{flag} {text}: write KEY=VALUE", WRONG_USAGE)
        found[key] = value
    return found


def _taint(flag: str, text: str) -> JsonObject:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    if not key or not effect:
        raise CliError(f"{flag} {text}: write KEY=VALUE:EFFECT, e.g. spot=true:NoSchedule", WRONG_USAGE)
    return {"key": key, **({"value": value} if value else {}), "effect": effect}


def _toleration(text: str) -> JsonObject:
    taint = _taint("--tolerations", text)
    return {**taint, "operator": "Equal" if "value" in taint else "Exists"}


# --- writing ---------------------------------------------------------------------------------------------------------


def _create(
    kind: str,
    name: str,
    namespace: str | None,
    spec: JsonObject,
    where: tuple[str | None, Path | None, str | None],
    *,
    dry_run: bool,
    output: Output,
    needed: str | None = None,
) -> None:
    """Create one object; `needed` is a ClusterQueue that has to be there."""
    check_names(name, namespace or "")
    resource = next(each for each in RESOURCES.values() if each.kind == kind)

    async def create(objects: ClusterObjects) -> None:
        if needed is not None:
            await _require(objects, needed)
        within = (namespace or objects.namespace) if resource.namespaced else None
        metadata = {"name": name, **({"namespace": within} if within else {})}
        body = {"apiVersion": V1BETA2, "kind": kind, "metadata": metadata, "spec": spec}
        answer = await objects.client.create(resource, body, within, field_manager=FIELD_MANAGER, dry_run=dry_run)
        if output is Output.TABLE:
            print(f"{kind.lower()}.{resource.group}/{name} created{' (server dry run)' if dry_run else ''}")
        else:
            emit(msgspec.json.decode(answer), output, lambda: None)

    anyio.run(with_cluster, *where, create)


async def _require(objects: ClusterObjects, cluster_queue: str) -> None:
    try:
        await objects.client.get(RESOURCES["clusterqueues"], cluster_queue)
    except ApiError as error:
        if not error.is_not_found:
            raise
        raise CliError(
            f"clusterqueue {cluster_queue} does not exist: create it first, or give --ignore-unknown-cq", FAILED
        ) from error
