"""Waiting until the API server shows what a test expects."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from tests.kube.e2e.cells import Deployment, Json
from tests.kube.e2e.objects import condition
from tests.kube.e2e.standing import standing
from tests.support.waiting import until

from headgate.adapters.kubernetes.resources import WORKLOADS, Resource

Condition = Callable[[Json], Any]


async def becomes(
    deployment: Deployment, resource: Resource, name: str, namespace: str | None, *conditions: Condition
) -> Json:
    """Wait until an object fulfils all conditions; the object."""
    found: Json = {}

    async def holds() -> bool:
        nonlocal found
        found = await deployment.get(resource, name, namespace)
        return _fulfils(found, conditions)

    async def told() -> str:
        return f"{resource.kind} {name}: {msgspec.json.encode(found).decode()}\n{await standing(deployment, namespace)}"

    await until(holds, told)
    return found


async def workload_of(deployment: Deployment, team: str, *conditions: Condition) -> Json:
    """Wait until the only Workload of a namespace is there and fulfils all conditions; the Workload."""
    found: list[Json] = []

    async def holds() -> bool:
        nonlocal found
        found = await deployment.all(WORKLOADS, team)
        return len(found) == 1 and _fulfils(found[0], conditions)

    async def told() -> str:
        return f"the only Workload: {msgspec.json.encode(found).decode()}\n{await standing(deployment, team)}"

    await until(holds, told)
    return found[0]


def _fulfils(found: Json, conditions: Sequence[Condition]) -> bool:
    """Whether an object fulfils all conditions; one that reads a field which is not there yet does not hold yet."""
    try:
        return all(each(found) for each in conditions)
    except KeyError:
        return False


def has(kind: str, status: str = "True", reason: str = "") -> Condition:
    """A condition of this type with this status and, if one is named, this reason."""
    return lambda found: (
        condition(found, kind) in ((status, reason),) if reason else condition(found, kind)[0] == status
    )
