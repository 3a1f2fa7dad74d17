"""`headgate apply`, `get` and `delete`: the cluster's objects, where kubectl is not available."""

from pathlib import Path
from typing import Annotated, Any

import anyio
import msgspec
import typer

from headgate.adapters.kubernetes.client import PatchType, Propagation
from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.resources import Resource
from headgate.cli import completion, options
from headgate.cli.cluster import ClusterObjects, access_of, open_cluster
from headgate.cli.conflicts import fields_of_headgate, without
from headgate.cli.manifests import Manifest, path_problem, read_manifests
from headgate.cli.output import FAILED, OK, CliError, Output, emit, print_table, say

app = typer.Typer(add_completion=False)

FIELD_MANAGER = "headgate-cli"

_Files = Annotated[
    list[str] | None, typer.Option("-f", "--filename", metavar="FILE|DIR|-", help="Manifests: YAML or JSON.")
]
_Namespace = Annotated[
    str | None,
    typer.Option("-n", "--namespace", metavar="NS", help="The namespace.", autocompletion=completion.namespaces),
]
_Kind = Annotated[str | None, typer.Argument(help="A kind, by any of its names.", autocompletion=completion.kinds)]
_Names = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME]...", help="Its objects.", autocompletion=completion.names)
]

_IgnoreMissing = Annotated[bool, typer.Option("--ignore-not-found", help="Ignore objects that do not exist.")]

_APPLY = """\b
Examples:
  headgate apply -f queues.yaml -f jobs/
  cat job.yaml | headgate apply -n team-a -f -
"""
_GET = """\b
Examples:
  headgate get clusterqueues
  headgate get jobs -A
  headgate get workload job-train-7-4f1c2 -n team-a -o yaml
"""
_DELETE = """\b
Examples:
  headgate delete -f jobs.yaml
  headgate delete job train-7 -n team-a
"""


class Done(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The outcome for one object. `error` is the server's message, "" on success.

    `kept` are the fields of the manifest that were not applied, because they are Headgate's while the object is queued.
    """

    object: str
    namespace: str = ""
    origin: str = ""
    outcome: str = ""
    error: str = ""
    kept: tuple[str, ...] = ()


@app.command(epilog=_APPLY)
def apply(
    filename: _Files = None,
    namespace: _Namespace = None,
    force: Annotated[bool, typer.Option("--force-conflicts", help="Take fields that others own.")] = False,
    output: options.OutputOption = Output.TABLE,
    kubeconfig: options.ClusterKubeconfig = None,
    data: options.ClusterData = None,
    cell: options.ClusterCell = None,
) -> None:
    """
    Create or change objects as manifests say (server-side apply).

    Fields that Headgate sets while a job is queued, as a Job's .spec.suspend, stay as they are.
    """
    if not filename:
        raise CliError("name what to apply: -f FILE, a directory, or -f - for standard input")
    manifests = read_manifests(filename)

    async def each(objects: ClusterObjects) -> list[Done]:
        return [await apply_one(objects, manifest, namespace, force=force) for manifest in manifests]

    _finish(anyio.run(with_cluster, kubeconfig, data, cell, each), output)


@app.command(epilog=_DELETE)
def delete(
    kind: _Kind = None,
    names: _Names = None,
    filename: _Files = None,
    namespace: _Namespace = None,
    ignore_missing: _IgnoreMissing = False,
    output: options.OutputOption = Output.TABLE,
    kubeconfig: options.ClusterKubeconfig = None,
    data: options.ClusterData = None,
    cell: options.ClusterCell = None,
) -> None:
    """Delete objects, by name or as manifests list them."""
    if bool(filename) == bool(kind):
        raise CliError("name what to delete: either KIND NAME, or -f FILE")
    if kind and not names:
        raise CliError(f"name the {kind} to delete: headgate delete {kind} NAME")
    manifests = read_manifests(filename) if filename else []
    check_names(*(names or ()), namespace or "")

    async def each(objects: ClusterObjects) -> list[Done]:
        if kind:
            resource = await objects.by_name(kind)
            within = (namespace or objects.namespace) if resource.namespaced else ""
            return [await _delete(objects, resource, name, within, "", ignore_missing) for name in names or ()]
        done = []
        # Objects created last are deleted first: objects before their queues and namespaces.
        for manifest in reversed(manifests):
            found = await _resource_of(objects, manifest)
            if isinstance(found, Done):
                done.append(found)
                continue
            within = _namespace_of(objects, found, manifest, namespace)
            done.append(await _delete(objects, found, manifest.name, within, manifest.origin, ignore_missing))
        return done

    _finish(anyio.run(with_cluster, kubeconfig, data, cell, each), output)


@app.command(epilog=_GET)
def get(
    kind: Annotated[str, typer.Argument(help="A kind, by any of its names.", autocompletion=completion.kinds)],
    name: Annotated[
        str | None,
        typer.Argument(help="One object; all of them if left out.", autocompletion=completion.names),
    ] = None,
    namespace: _Namespace = None,
    everywhere: Annotated[bool, typer.Option("-A", "--all-namespaces", help="In all namespaces.")] = False,
    selector: Annotated[str, typer.Option("-l", "--selector", metavar="LABELS", help="Only these labels.")] = "",
    output: options.OutputOption = Output.TABLE,
    kubeconfig: options.ClusterKubeconfig = None,
    data: options.ClusterData = None,
    cell: options.ClusterCell = None,
) -> None:
    """Show objects of the cluster."""
    check_names(name or "", namespace or "")

    async def each(objects: ClusterObjects) -> None:
        resource = await objects.by_name(kind)
        within = None if everywhere or not resource.namespaced else namespace or objects.namespace
        if name is not None and resource.namespaced and within is None:
            raise CliError(f"name the namespace of {kind} {name}: -n NS in place of -A")
        await print_objects(objects, resource, name, within, {"labelSelector": selector} if selector else {}, output)

    anyio.run(with_cluster, kubeconfig, data, cell, each)


async def print_objects(
    objects: ClusterObjects,
    resource: Resource,
    name: str | None,
    namespace: str | None,
    query: dict[str, str],
    output: Output,
) -> None:
    """One object, or all of a kind, as the server has them. Raises ApiError."""
    path = resource.path(namespace=namespace, name=name)
    if output is Output.TABLE:
        await _table(objects, path, query, with_namespace=resource.namespaced and namespace is None)
    else:
        answer: Any = msgspec.json.decode(await objects.client.request("GET", path, query=query))
        emit(answer, output, lambda: None)


async def with_cluster(kubeconfig: str | None, data: Path | None, cell: str | None, act: Any) -> Any:
    """What `act` makes of the cluster. Raises CliError with the words of the server."""
    async with open_cluster(access_of(kubeconfig, data, cell)) as objects:
        try:
            return await act(objects)
        except ApiError as error:
            raise CliError(_words(error), FAILED) from error


async def apply_one(objects: ClusterObjects, manifest: Manifest, namespace: str | None, *, force: bool = False) -> Done:
    """Apply one object; the outcome. Raises TransportError."""
    resource = await _resource_of(objects, manifest)
    if isinstance(resource, Done):
        return resource
    within = _namespace_of(objects, resource, manifest, namespace)
    what = _named(resource, manifest.name)
    try:
        body = manifest.body if not within else _in_namespace(manifest.body, within)
        before = await _version_of(objects, resource, manifest.name, within)
        answer, kept = await _applied(objects, resource, manifest.name, body, within, force=force)
    except ApiError as error:
        return Done(object=what, namespace=within, origin=manifest.origin, error=_words(error) + _remedy(error))
    after = msgspec.json.decode(answer, type=_Versioned).metadata.resource_version
    outcome = "created" if before is None else "unchanged" if before == after else "configured"
    return Done(object=what, namespace=within, origin=manifest.origin, outcome=outcome, kept=kept)


async def _applied(
    objects: ClusterObjects, resource: Resource, name: str, body: dict[str, Any], namespace: str, *, force: bool
) -> tuple[bytes, tuple[str, ...]]:
    """Apply a body, without the fields that are Headgate's by now; the answer and these fields. Raises ApiError."""

    async def send(body: dict[str, Any]) -> bytes:
        return await objects.client.patch(
            resource, name, body, namespace or None,
            patch_type=PatchType.APPLY, field_manager=FIELD_MANAGER, force=force,
        )  # fmt: skip

    try:
        return await send(body), ()
    except ApiError as error:
        kept = fields_of_headgate(error)
        rest: dict[str, Any] | None = body
        for field in kept:
            rest = without(rest, field) if rest is not None else None
        if not kept or rest is None:
            raise
        return await send(rest), kept


async def _delete(
    objects: ClusterObjects, resource: Resource, name: str, namespace: str, origin: str, ignore_missing: bool
) -> Done:
    what = _named(resource, name)
    try:
        await objects.client.delete(resource, name, namespace or None, propagation=Propagation.BACKGROUND)
    except ApiError as error:
        if error.is_not_found and ignore_missing:
            return Done(object=what, namespace=namespace, origin=origin, outcome="not there")
        return Done(object=what, namespace=namespace, origin=origin, error=_words(error))
    return Done(object=what, namespace=namespace, origin=origin, outcome="deleted")


async def _resource_of(objects: ClusterObjects, manifest: Manifest) -> Resource | Done:
    resource = await objects.by_kind(manifest.api_version, manifest.kind)
    if resource is not None:
        return resource
    return Done(
        object=f"{manifest.kind.lower()}/{manifest.name}",
        origin=manifest.origin,
        error=f'no matches for kind "{manifest.kind}" in version "{manifest.api_version}"',
    )


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Versioned(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


async def _version_of(objects: ClusterObjects, resource: Resource, name: str, namespace: str) -> str | None:
    """The resource version of an object; None when it is not there."""
    try:
        body = await objects.client.get(resource, name, namespace or None)
    except ApiError as error:
        if error.is_not_found:
            return None
        raise
    return msgspec.json.decode(body, type=_Versioned).metadata.resource_version


def _namespace_of(objects: ClusterObjects, resource: Resource, manifest: Manifest, namespace: str | None) -> str:
    if not resource.namespaced:
        return ""
    if manifest.namespace and namespace and manifest.namespace != namespace:
        raise CliError(
            f"{manifest.origin}: {resource.kind} {manifest.name}: the namespace from the provided object "
            f'"{manifest.namespace}" does not match the namespace "{namespace}"'
        )
    return manifest.namespace or namespace or objects.namespace


def _in_namespace(body: dict[str, Any], namespace: str) -> dict[str, Any]:
    return body | {"metadata": body["metadata"] | {"namespace": namespace}}


def _named(resource: Resource, name: str) -> str:
    group = f".{resource.group}" if resource.group else ""
    return f"{resource.kind.lower()}{group}/{name}"


def _remedy(error: ApiError) -> str:
    """The remedy for fields that another manager has set since; kubectl prints a page for it."""
    if error.status != 409 or "conflict" not in error.message:
        return ""
    return "; leave those fields out, or take them with --force-conflicts"


def check_names(*names: str) -> None:
    """Raises CliError for a name that would be another path of the API."""
    for name in names:
        if problem := path_problem(name):
            raise CliError(f"the name {name!r} {problem}")


def _words(error: ApiError) -> str:
    """The server's message, including each invalid field."""
    return " ".join(error.message.split())


def _finish(done: list[Done], output: Output) -> None:
    """Print the outcome for each object: successes as data, refusals as one line each on standard error."""
    failed = [each for each in done if each.error]
    if output is Output.TABLE:
        for each in done:
            if not each.error:
                print(f"{each.object} {each.outcome}")
            if each.kept:
                say(f"{each.object}: {', '.join(each.kept)} stays as it is: Headgate sets it while the job is queued")
        for each in failed:
            say(f"headgate: {each.origin + ': ' if each.origin else ''}{each.object}: {each.error}")
    else:
        emit(done, output, lambda: None)
    raise typer.Exit(FAILED if failed else OK)


class _Column(msgspec.Struct):
    name: str
    priority: int = 0


class _RowMetadata(msgspec.Struct):
    namespace: str = ""


class _RowObject(msgspec.Struct):
    metadata: _RowMetadata = msgspec.field(default_factory=_RowMetadata)


class _Row(msgspec.Struct):
    cells: list[Any]
    object: _RowObject = msgspec.field(default_factory=_RowObject)


class _Table(msgspec.Struct, rename="camel"):
    column_definitions: list[_Column]
    rows: list[_Row] | None = None


_AS_TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


async def _table(objects: ClusterObjects, path: str, query: dict[str, str], *, with_namespace: bool) -> None:
    """The same table as kubectl's: the server renders it."""
    response = await objects.client.transport.request("GET", path, query=query, headers=_AS_TABLE)
    if response.status != 200:
        from headgate.adapters.kubernetes.errors import api_error

        raise api_error(response.status, response.headers, response.body)
    table = msgspec.json.decode(response.body, type=_Table)
    shown = [index for index, column in enumerate(table.column_definitions) if not column.priority]
    rows = table.rows or []
    if not rows:
        say("No resources found")
        return
    columns = [table.column_definitions[index].name.upper() for index in shown]
    cells = [["" if row.cells[index] is None else str(row.cells[index]) for index in shown] for row in rows]
    if with_namespace:
        columns = ["NAMESPACE", *columns]
        cells = [[row.object.metadata.namespace, *each] for row, each in zip(rows, cells, strict=True)]
    print_table(columns, cells)
