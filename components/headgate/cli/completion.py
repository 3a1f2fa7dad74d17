"""
Completion of names in the shell: of kinds, objects, workloads, pods, ClusterQueues, namespaces of the cluster in use.

Called by typer while a line is being typed. It asks the API server as `headgate get` would, for at most TIMEOUT_S, and
completes nothing where there is none: an error would be printed into the line.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import anyio
import msgspec
import typer

T = TypeVar("T")

TIMEOUT_S: Final = 2.0
LISTED_MAX: Final = 1_000
"""How many objects are listed; with more, a namespace helps."""
_NAMES_ONLY: Final = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"}


class _Metadata(msgspec.Struct):
    name: str
    namespace: str = ""


class _Item(msgspec.Struct):
    metadata: _Metadata


class _List(msgspec.Struct):
    items: tuple[_Item, ...] = ()


def kinds(ctx: typer.Context, incomplete: str) -> list[str]:
    """The kinds of the cluster by their plural names."""
    found: list[str] = _asked(ctx, lambda objects: objects.names_of_kinds(), [])
    return [name for name in found if name.startswith(incomplete)]


def names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The objects of the kind that the line names, in its namespace."""
    kind = ctx.params.get("kind")
    given = {*_texts(ctx.params.get("names")), *_texts(ctx.params.get("name"))}
    found = _listed(ctx, kind, within=ctx.params.get("namespace") or "") if kind else []
    return [each.name for each in found if each.name.startswith(incomplete) and each.name not in given]


def workloads(ctx: typer.Context, incomplete: str) -> list[str]:
    """Workloads and Jobs as `<namespace>/<name>`, or by name alone where the line has a namespace."""
    return _shown(ctx, ("jobs", "workloads"), incomplete)


def explained(ctx: typer.Context, incomplete: str) -> list[str]:
    """What `headgate explain` tells of: as `workloads`, and pods, with `pod/` before them where the line has it."""
    if incomplete.startswith("pod/"):
        return [f"pod/{each}" for each in _shown(ctx, ("pods",), incomplete.removeprefix("pod/"))]
    return _shown(ctx, ("jobs", "workloads", "pods"), incomplete)


def _shown(ctx: typer.Context, kinds: tuple[str, ...], incomplete: str) -> list[str]:
    within = ctx.params.get("namespace") or ""
    found = [each for kind in kinds for each in _listed(ctx, kind, within=within or None)]
    shown = [each.name if within else f"{each.namespace}/{each.name}" for each in found]
    return [each for each in dict.fromkeys(shown) if each.startswith(incomplete)]


def stoppable(incomplete: str) -> list[str]:
    """The kinds that can be stopped."""
    return [each for each in ("clusterqueue", "localqueue", "workload") if each.startswith(incomplete)]


def cluster_queues(ctx: typer.Context, incomplete: str) -> list[str]:
    """The ClusterQueues."""
    return [each.name for each in _listed(ctx, "clusterqueues", within=None) if each.name.startswith(incomplete)]


def namespaces(ctx: typer.Context, incomplete: str) -> list[str]:
    """The namespaces."""
    return [each.name for each in _listed(ctx, "namespaces", within=None) if each.name.startswith(incomplete)]


def _texts(value: object) -> list[str]:
    return [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else []


def _listed(ctx: typer.Context, kind: str, *, within: str | None) -> list[_Metadata]:
    """The names of a kind; `within` a namespace, "" for that of the kubeconfig, None for all."""

    async def ask(objects: Any) -> list[_Metadata]:
        resource = await objects.by_name(kind)
        namespace = (within or objects.namespace) if resource.namespaced and within is not None else None
        path, query = resource.path(namespace=namespace), {"limit": str(LISTED_MAX)}
        answer = await objects.client.transport.request("GET", path, query=query, headers=_NAMES_ONLY)
        return [item.metadata for item in msgspec.json.decode(answer.body, type=_List).items]

    return _asked(ctx, ask, [])


def _asked(ctx: typer.Context, ask: Callable[[Any], Any], otherwise: T) -> T:
    """The answer of the cluster in use; otherwise, for whatever reason, that of the caller."""

    async def run() -> T:
        from headgate.cli.cluster import access_of, open_cluster

        given = ctx.params
        access = access_of(given.get("kubeconfig"), given.get("data"), given.get("cell"))
        with anyio.fail_after(TIMEOUT_S):
            async with open_cluster(access) as objects:
                found: T = await ask(objects)
                return found

    try:
        return anyio.run(run)
    except Exception:  # noqa: BLE001 - whatever it is, it must not be printed into the line
        return otherwise
