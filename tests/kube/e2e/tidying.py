"""
The shared control plane is left as it was found: after a test everything is removed that it has made.

Otherwise its pods would take the nodes' room from the tests after it, and their cells would go on with its objects.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import anyio
from tests.kube.e2e.cells import Deployment, Json

from headgate.adapters.kubernetes.client import Propagation
from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.resources import (
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    OF_JOBS,
    POD_TEMPLATES,
    PODS,
    PROVISIONING_REQUESTS,
    RESOURCES,
    TRAINING_RUNTIMES,
    WORKLOADS,
    Resource,
)

_CLUSTER_SCOPED: Final = tuple(each for each in RESOURCES.values() if not each.namespaced)
_SETS: Final = tuple(
    Resource(group="apps", version="v1", plural=f"{kind.lower()}s", kind=kind, namespaced=True)
    for kind in ("Deployment", "ReplicaSet")
)
_IN_ORDER: Final = (
    *_SETS,
    *OF_JOBS.values(),
    *(WORKLOADS, PODS, LOCAL_QUEUES, PROVISIONING_REQUESTS, POD_TEMPLATES, TRAINING_RUNTIMES),
    *(each for each in _CLUSTER_SCOPED if each != NAMESPACES),
    NAMESPACES,
)
"""First what makes pods, so that none is made anew, and last the namespaces, which end by and by."""


class Furniture(NamedTuple):
    """What is there before the first test: the objects that are in no namespace, and the labels of the nodes."""

    names: Mapping[str, frozenset[str]]
    labels: Mapping[str, Json]


async def furniture(deployment: Deployment) -> Furniture:
    """What is there now."""
    names = {each.name: frozenset(map(_name, await _all(deployment, each))) for each in _CLUSTER_SCOPED}
    labels = {_name(each): each["metadata"].get("labels", {}) for each in await deployment.all(NODES)}
    return Furniture(names, labels)


async def tidy(deployment: Deployment, before: Furniture) -> None:
    """
    Remove what is not of the furniture, with its finalizers: no cell runs now that would take them off.

    A namespace may end after the next test has begun. Nothing is left in it then that a cell would act on.
    """
    kept = before.names[NAMESPACES.name]
    for resource in _IN_ORDER:
        found = await _all(deployment, resource)
        if resource.namespaced:
            mine = [each for each in found if each["metadata"]["namespace"] not in kept]
        else:
            mine = [each for each in found if _name(each) not in before.names[resource.name]]
        async with anyio.create_task_group() as tasks:
            for each in mine:
                tasks.start_soon(_remove, deployment, resource, each)
    for node in await deployment.all(NODES):
        more = node["metadata"]["labels"].keys() - before.labels[_name(node)].keys()
        if more:
            await deployment.merge(NODES, _name(node), None, {"metadata": {"labels": dict.fromkeys(sorted(more))}})


def _name(found: Json) -> str:
    return str(found["metadata"]["name"])


async def _all(deployment: Deployment, resource: Resource) -> list[Json]:
    """All objects of a kind; none of one that is not served."""
    try:
        return await deployment.all(resource)
    except ApiError as error:
        if not resource.optional or not error.is_unserved:
            raise
        return []


async def _remove(deployment: Deployment, resource: Resource, found: Json) -> None:
    """Remove an object that may go meanwhile, with its owner, or be another one under its name."""
    meta = found["metadata"]
    where = meta["name"], meta.get("namespace")
    try:
        if meta.get("finalizers"):
            await deployment.merge(resource, *where, {"metadata": {"finalizers": None}})
        await deployment.client.delete(
            resource, *where, uid=meta["uid"], propagation=Propagation.BACKGROUND, grace_period_s=0
        )
    except ApiError as error:
        if error.status not in (404, 409):
            raise
