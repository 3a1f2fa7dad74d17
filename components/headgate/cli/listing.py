"""`headgate list`: Workloads with their jobs and positions, the pods of a workload, queues and flavors."""

import datetime as dt
from collections.abc import Iterator
from typing import Annotated, Any

import anyio
import msgspec
import typer

from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.resources import Resource
from headgate.cli import completion, options
from headgate.cli.cluster import ClusterObjects
from headgate.cli.objects import check_names, print_objects, with_cluster
from headgate.cli.output import WRONG_USAGE, CliError, Output, emit, print_table, say
from headgate.core.api.names import WORKLOAD_ANNOTATION

JsonObject = dict[str, Any]

_EPILOG = """\b
Examples:
  headgate list workload -n team-a --status pending       with their positions in the queue
  headgate list pods --for job/train-7 -n team-a          or --for workload/job-train-7-4f1c2
  headgate list clusterqueue
"""
_VISIBILITY = "/apis/visibility.kueue.x-k8s.io/v1beta2"
_STATUSES = ("pending", "quotareserved", "admitted", "finished")

app = typer.Typer(add_completion=False)


# Large: one parameter for each flag.
@app.command("list", epilog=_EPILOG)
def list_(
    kind: Annotated[str, typer.Argument(help="workload, pods, clusterqueue, localqueue, ...")],
    namespace: Annotated[
        str | None,
        typer.Option("-n", "--namespace", metavar="NS", help="The namespace.", autocompletion=completion.namespaces),
    ] = None,
    everywhere: Annotated[bool, typer.Option("-A", "--all-namespaces", help="In all namespaces.")] = False,
    selector: Annotated[str, typer.Option("-l", "--selector", metavar="LABELS", help="Only these labels.")] = "",
    job: Annotated[str, typer.Option("--for", metavar="KIND/NAME", help="Of pods: those of this job.")] = "",
    cluster_queue: Annotated[
        str,
        typer.Option(
            "-c", "--clusterqueue", metavar="NAME", help="Of Workloads.", autocompletion=completion.cluster_queues
        ),
    ] = "",
    local_queue: Annotated[str, typer.Option("-q", "--localqueue", metavar="NAME", help="Of Workloads.")] = "",
    status: Annotated[
        list[str] | None, typer.Option("--status", metavar="STATUS", help=f"Of Workloads: {', '.join(_STATUSES)}.")
    ] = None,
    output: options.OutputOption = Output.TABLE,
    kubeconfig: options.ClusterKubeconfig = None,
    data: options.ClusterData = None,
    cell: options.ClusterCell = None,
) -> None:
    """List Workloads and pods by what they belong to, and queues."""
    check_names(namespace or "")
    wrong = [each for each in status or () if each.lower() not in _STATUSES]
    if wrong:
        raise CliError(f"--status {wrong[0]}: write one of {', '.join(_STATUSES)}", WRONG_USAGE)

    async def act(objects: ClusterObjects) -> None:
        resource = await objects.by_name(kind)
        within = None if everywhere or not resource.namespaced else namespace or objects.namespace
        query = {"labelSelector": selector} if selector else {}
        if resource.kind not in ("Workload", "Pod"):
            await print_objects(objects, resource, None, within, query, output)
            return
        found = await _all(objects, resource, within, query)
        if resource.kind == "Pod":
            found = await _pods_of(objects, job, found, within)
        else:
            wanted = {each.lower() for each in status or ()}
            found = [each for each in found if _is_asked(each, cluster_queue, local_queue, wanted)]
        positions = await _positions(objects, found) if resource.kind == "Workload" and output is Output.TABLE else {}
        emit(found, output, lambda: _show(resource.kind, found, positions, with_namespace=within is None))

    anyio.run(with_cluster, kubeconfig, data, cell, act)


async def _all(
    objects: ClusterObjects, resource: Resource, namespace: str | None, query: dict[str, str]
) -> list[JsonObject]:
    return [
        msgspec.json.decode(raw, type=dict)
        async for page in objects.client.pages(resource, namespace, query=query)
        for raw in page.items
    ]


# --- Workloads -------------------------------------------------------------------------------------------------------


def status_of(workload: JsonObject) -> str:
    """`FINISHED`, `ADMITTED`, `QUOTARESERVED` or `PENDING`, as Kueue's plugin says."""
    conditions = (workload.get("status") or {}).get("conditions") or ()
    true = {each["type"] for each in conditions if each.get("status") == "True"}
    found = next((each for each in ("Finished", "Admitted", "QuotaReserved") if each in true), "Pending")
    return found.upper()


def _cluster_queue(workload: JsonObject) -> str:
    return str(((workload.get("status") or {}).get("admission") or {}).get("clusterQueue", ""))


def _is_asked(workload: JsonObject, cluster_queue: str, local_queue: str, statuses: set[str]) -> bool:
    return (
        (not cluster_queue or _cluster_queue(workload) == cluster_queue)
        and (not local_queue or workload["spec"].get("queueName") == local_queue)
        and (not statuses or status_of(workload).lower() in statuses)
    )


async def _positions(objects: ClusterObjects, workloads: list[JsonObject]) -> dict[tuple[str, str], str]:
    """The position of each pending Workload in its LocalQueue; none where the visibility API is not served."""
    queues = {
        (each["metadata"]["namespace"], each["spec"].get("queueName", ""))
        for each in workloads
        if status_of(each) == "PENDING"
    }
    found: dict[tuple[str, str], str] = {}
    for namespace, queue in sorted(queues):
        if not queue:
            continue
        path = f"{_VISIBILITY}/namespaces/{namespace}/localqueues/{queue}/pendingworkloads"
        try:
            answer = msgspec.json.decode(await objects.client.request("GET", path), type=dict)
        except ApiError:
            continue
        for each in answer.get("items") or ():
            found[namespace, each["metadata"]["name"]] = str(each.get("positionInLocalQueue", ""))
    return found


def _show(kind: str, found: list[JsonObject], positions: dict[tuple[str, str], str], *, with_namespace: bool) -> None:
    if not found:
        say("No resources found")
        return
    columns: tuple[str, ...] = _POD_COLUMNS
    rows = [_pod_row(each) for each in found]
    if kind == "Workload":
        columns, rows = _WORKLOAD_COLUMNS, [_workload_row(each, positions) for each in found]
    if with_namespace:
        columns = ("NAMESPACE", *columns)
        rows = [[each["metadata"]["namespace"], *row] for each, row in zip(found, rows, strict=True)]
    print_table(columns, rows)


_WORKLOAD_COLUMNS = ("NAME", "JOB TYPE", "JOB NAME", "LOCALQUEUE", "CLUSTERQUEUE", "STATUS", "POSITION IN QUEUE", "AGE")
_POD_COLUMNS = ("NAME", "STATUS", "NODE", "AGE")


def _workload_row(workload: JsonObject, positions: dict[tuple[str, str], str]) -> list[str]:
    metadata = workload["metadata"]
    owner: JsonObject = next(iter(_owners(workload)), {})
    group = str(owner.get("apiVersion", "")).rpartition("/")[0]
    kind = str(owner.get("kind", "")).lower()
    return [
        metadata["name"],
        f"{kind}.{group}" if group else kind,
        str(owner.get("name", "")),
        str(workload["spec"].get("queueName", "")),
        _cluster_queue(workload),
        status_of(workload),
        positions.get((metadata["namespace"], metadata["name"]), ""),
        _age(metadata),
    ]


def _pod_row(pod: JsonObject) -> list[str]:
    status, spec = pod.get("status") or {}, pod.get("spec") or {}
    return [pod["metadata"]["name"], str(status.get("phase", "")), str(spec.get("nodeName", "")), _age(pod["metadata"])]


def _owners(obj: JsonObject) -> list[JsonObject]:
    return list(obj["metadata"].get("ownerReferences") or ())


def _age(metadata: JsonObject) -> str:
    created = dt.datetime.fromisoformat(str(metadata["creationTimestamp"]).replace("Z", "+00:00"))
    seconds = max(0, int((dt.datetime.now(dt.UTC) - created).total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


# --- pods ------------------------------------------------------------------------------------------------------------


async def _pods_of(
    objects: ClusterObjects, job: str, pods: list[JsonObject], namespace: str | None
) -> list[JsonObject]:
    """The pods of a job or Workload: those that it owns, directly or through other objects, or that name it."""
    if not job:
        raise CliError("list pods: name the job whose pods these are: --for job/train-7", WRONG_USAGE)
    if namespace is None:
        raise CliError("list pods --for: name the namespace of the job: -n NS in place of -A", WRONG_USAGE)
    kind, slash, name = job.partition("/")
    if not slash or not name:
        raise CliError(f"--for {job}: write KIND/NAME, e.g. job/train-7", WRONG_USAGE)
    check_names(name)
    resource = await objects.by_name(kind)
    root = msgspec.json.decode(await objects.client.get(resource, name, namespace), type=dict)
    roots, workloads = {root["metadata"]["uid"]}, set()
    if resource.kind == "Workload":
        workloads.add(name)
        roots |= {each["uid"] for each in _owners(root)}
    owned = set(_descendants(roots, [*pods, *await _owners_above(objects, pods, namespace)]))
    return [
        each
        for each in pods
        if each["metadata"]["uid"] in owned | roots
        or (each["metadata"].get("annotations") or {}).get(WORKLOAD_ANNOTATION) in workloads
    ]


async def _owners_above(objects: ClusterObjects, pods: list[JsonObject], namespace: str) -> list[JsonObject]:
    """What owns the pods, directly or through other objects, with what else is of these kinds; each is listed once."""
    found: list[JsonObject] = []
    layer, kinds = pods, dict[tuple[str, str], None]()
    while layer:
        new = {(owner["apiVersion"], owner["kind"]): None for each in layer for owner in _owners(each)}
        layer = []
        for api_version, kind in sorted(each for each in new if each not in kinds):
            kinds[api_version, kind] = None
            resource = await objects.by_kind(api_version, kind)
            if resource is None or not resource.namespaced:
                continue
            try:
                layer += await _all(objects, resource, namespace, {})
            except ApiError as error:
                if error.is_access_denied:
                    say(f"pods below {resource.plural} may be missing: {error}")
                elif not error.is_unserved:
                    raise
        found += layer
    return found


def _descendants(roots: set[str], candidates: list[JsonObject]) -> Iterator[str]:
    """The uids of what the roots own, and of what that owns: a JobSet's Jobs, and their pods."""
    known = set(roots)
    while True:
        found = {
            each["metadata"]["uid"]
            for each in candidates
            if each["metadata"]["uid"] not in known and any(owner["uid"] in known for owner in _owners(each))
        }
        if not found:
            return
        known |= found
        yield from sorted(found)
